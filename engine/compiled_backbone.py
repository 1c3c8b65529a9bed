"""A backbone made ready for serving: what serving needs of it, without the modules that learning needs.

Making one takes seconds and several times the memory of using it (torch traces, converts, and keeps what it traced),
so it is written to a folder by one process and read by all others.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.backbones import Backbone
from core.images import Framing
from core.state import Weights, weights_of
from engine.compiled_module import CompiledModule, GraphTemplate, OpenVinoTemplate, TorchTemplate, warmed
from engine.errors import BrokenCompiledBackbone

TRUNK, TAIL = "trunk.", "tail."
MANIFEST = "kit.json"
_WEIGHTS = "weights.safetensors"
_GRAPHS = ("trunk.xml", "tail.xml")
_FILES = (_WEIGHTS, *_GRAPHS, "trunk.bin", "tail.bin")


@dataclass(frozen=True, eq=False)
class CompiledBackbone:
    backbone: str
    framing: Framing
    dim: int
    own: Weights  # the tail's, as they come with the backbone
    own_trunk: CompiledModule
    trunks: GraphTemplate
    tails: GraphTemplate

    @classmethod
    def of(cls, backbone: Backbone, device: torch.device) -> "CompiledBackbone":
        """For torch, where nothing has to be converted."""
        trunks, tails = TorchTemplate(backbone.trunk, device), TorchTemplate(backbone.tail, device)
        own_trunk = trunks.bound(backbone.trunk.state_dict(), heavy=True)
        own = weights_of(backbone, "tail")
        return cls(backbone.name, backbone.framing, backbone.dim, own, own_trunk, trunks, tails)

    @classmethod
    def read(cls, folder: Path) -> "CompiledBackbone":
        about = _manifest(folder)
        weights = load_file(folder / _WEIGHTS)
        trunks, tails = (OpenVinoTemplate.read(folder / graph) for graph in _GRAPHS)
        own_trunk = trunks.bound(_part(weights, TRUNK), heavy=True)
        own = {name: weight.clone() for name, weight in weights.items() if name.startswith(TAIL)}
        return cls(about["backbone"], Framing(**about["framing"]), about["dim"], own, own_trunk, trunks, tails)

    @cached_property
    def activation(self) -> Tensor:
        """What the trunk makes of a blank picture."""
        return warmed(self.own_trunk, self.framing.blank())

    def trunk(self, weights: Weights) -> CompiledModule:
        """Shared by all models on the backbone, unless a base session trained it too."""
        trained = _part(weights, TRUNK)
        return self.trunks.bound(trained, heavy=True) if trained else self.own_trunk

    def tail(self, weights: Weights) -> CompiledModule:
        """Not heavy: it is computed in a moment, and compiled for every version."""
        return self.tails.bound(_part({**self.own, **weights}, TAIL), heavy=False)


def write_compiled_backbone(backbone: Backbone, folder: Path) -> None:
    """Everything that `CompiledBackbone.read` wants, and what it must read like."""
    picture = backbone.framing.blank()
    with torch.no_grad():
        activation = backbone.trunk(picture)
    trunk, tail = (folder / graph for graph in _GRAPHS)
    OpenVinoTemplate.of(backbone.trunk, picture).write(trunk)
    OpenVinoTemplate.of(backbone.tail, activation).write(tail)
    save_file({name: weight.contiguous() for name, weight in backbone.state_dict().items()}, folder / _WEIGHTS)
    about = {
        "backbone": backbone.name,
        "framing": asdict(backbone.framing),
        "dim": backbone.dim,
        "files": {name: _digest(folder / name) for name in _FILES},
    }
    (folder / MANIFEST).write_text(json.dumps(about, indent=1))


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        broken = [name for name in _FILES if _digest(folder / name) != about["files"][name]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenCompiledBackbone(f"{folder} cannot be read: {type(error).__name__}: {error}") from error
    if broken:
        raise BrokenCompiledBackbone(f"{folder / broken[0]} is not what was written")
    return about


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _part(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
