"""A backbone compiled for this machine: what serving needs of it, without the modules that learning needs.

Compiling takes seconds and several times the memory of using the result, because torch keeps what it has traced. So one
process writes the compiled backbone to a folder, and all others read it.
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
from core.space import Space
from core.state import Weights, weights_of
from engine.compiled_module import CompiledModule, warm_up
from engine.errors import BrokenCompiledBackbone
from engine.graph_template import GraphTemplate, OpenVinoTemplate, TorchTemplate, export_graph
from engine.network import Network, NetworkKey

MANIFEST = "manifest.json"
_TRUNK, _TAIL = "trunk.", "tail."  # prefixes of weights
_WEIGHTS = "weights.safetensors"
_GRAPHS = ("trunk.xml", "tail.xml")
_FILES = (_WEIGHTS, *_GRAPHS, "trunk.bin", "tail.bin")


@dataclass(frozen=True, eq=False)
class CompiledBackbone:
    name: str
    framing: Framing
    dim: int
    tail_weights: Weights  # pretrained
    pretrained_trunk: CompiledModule
    trunk_template: GraphTemplate
    tail_template: GraphTemplate

    @classmethod
    def on_torch(cls, backbone: Backbone, device: torch.device) -> "CompiledBackbone":
        """For the engine torch, which needs no conversion."""
        trunks, tails = TorchTemplate(backbone.trunk, device), TorchTemplate(backbone.tail, device)
        trunk = trunks.bind(backbone.trunk.state_dict(), latency=True)
        return cls(backbone.name, backbone.framing, backbone.dim, weights_of(backbone, "tail"), trunk, trunks, tails)

    @classmethod
    def read(cls, folder: Path) -> "CompiledBackbone":
        """Read what `write_compiled_backbone` has written. Raises BrokenCompiledBackbone."""
        manifest = _read_manifest(folder)
        weights = load_file(folder / _WEIGHTS)
        trunks, tails = (OpenVinoTemplate.read(folder / graph) for graph in _GRAPHS)
        trunk = trunks.bind(_part(weights, _TRUNK), latency=True)
        tail_weights = {name: weight.clone() for name, weight in weights.items() if name.startswith(_TAIL)}
        framing = Framing(**manifest["framing"])
        return cls(manifest["backbone"], framing, manifest["dim"], tail_weights, trunk, trunks, tails)

    def network(self, weights: Weights, space: Space, key: NetworkKey) -> Network:
        """Compile and warm up the network with these weights; those that are not given are the pretrained ones."""
        trunk, tail = self.trunk(weights), self.tail(weights)
        if trunk is not self.pretrained_trunk:
            warm_up(trunk, self.framing.blank())
        warm_up(tail, self._blank_activation)
        return Network(key, trunk, tail, space, self.framing, self.dim)

    def trunk(self, weights: Weights) -> CompiledModule:
        """The pretrained trunk, which all models share, unless `weights` include trained ones of the trunk."""
        trained = _part(weights, _TRUNK)
        return self.trunk_template.bind(trained, latency=True) if trained else self.pretrained_trunk

    def tail(self, weights: Weights) -> CompiledModule:
        """Without latency mode: a tail is small, and is compiled for every version."""
        return self.tail_template.bind(_part({**self.tail_weights, **weights}, _TAIL), latency=False)

    @cached_property
    def _blank_activation(self) -> Tensor:
        return warm_up(self.pretrained_trunk, self.framing.blank())


def write_compiled_backbone(backbone: Backbone, folder: Path) -> None:
    """Write what `CompiledBackbone.read` reads, with a digest of every file."""
    image = backbone.framing.blank()
    with torch.no_grad():
        activation = backbone.trunk(image)
    trunk, tail = (folder / graph for graph in _GRAPHS)
    export_graph(backbone.trunk, image, trunk)
    export_graph(backbone.tail, activation, tail)
    save_file({name: weight.contiguous() for name, weight in backbone.state_dict().items()}, folder / _WEIGHTS)
    manifest = {
        "backbone": backbone.name,
        "framing": asdict(backbone.framing),
        "dim": backbone.dim,
        "files": {name: _digest(folder / name) for name in _FILES},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        changed = [name for name in _FILES if _digest(folder / name) != manifest["files"][name]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenCompiledBackbone(f"{folder} cannot be read: {type(error).__name__}: {error}") from error
    if changed:
        raise BrokenCompiledBackbone(f"{folder / changed[0]} has changed since it was written")
    return manifest


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _part(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
