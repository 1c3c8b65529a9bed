"""Networks kept warm: each backbone built once, its trunk compiled once for all models on it."""

import threading
from typing import Literal

import torch
from torch import Tensor

from core import backbones
from core.backbones import Backbone
from core.inference import Blueprint, Engine, Forward, compiled
from core.state import with_weights
from learners.loading import Trained


class Networks:
    """Built on first use and kept."""

    def __init__(self, device: torch.device, engine: Engine) -> None:
        self.device = device
        self.engine = engine
        self._building = threading.Lock()
        self._backbones: dict[str, Backbone] = {}
        self._trunks: dict[str, Forward] = {}
        self._blueprints: dict[tuple[str, str], Blueprint] = {}

    def pretrained(self, name: str) -> Backbone:
        """The backbone as it comes; one without pretrained weights begins with the same ones in every process."""
        with self._building:  # one at a time: two would draw from the same random numbers
            if name not in self._backbones:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    self._backbones[name] = backbones.build(name)
            return self._backbones[name]

    def trained(self, name: str, network: Trained) -> Backbone:
        return with_weights(self.pretrained(name), network.weights)

    def trunk(self, backbone: Backbone, network: Trained) -> Forward:
        """The trunk, compiled; shared by all models unless a base session trained it too."""
        if any(weight.startswith("trunk.") for weight in network.weights):
            return self._blueprint(backbone, "trunk").bound(backbone.trunk)
        if backbone.name not in self._trunks:
            pretrained = self.pretrained(backbone.name)
            self._trunks[backbone.name] = compiled(
                pretrained.trunk, example_picture(backbone), device=self.device, engine=self.engine
            )
        return self._trunks[backbone.name]

    def tail(self, backbone: Backbone) -> Forward:
        """The tail with its present weights, compiled."""
        return self._blueprint(backbone, "tail").bound(backbone.tail)

    def _blueprint(self, backbone: Backbone, part: Literal["trunk", "tail"]) -> Blueprint:
        key = (backbone.name, part)
        if key not in self._blueprints:
            example = example_picture(backbone) if part == "trunk" else example_activation(backbone)
            module = getattr(self.pretrained(backbone.name), part)
            self._blueprints[key] = Blueprint(module, example, device=self.device, engine=self.engine)
        return self._blueprints[key]


def example_picture(backbone: Backbone) -> Tensor:
    size = backbone.framing.size
    return torch.zeros(1, 3, size, size, dtype=torch.uint8)


def example_activation(backbone: Backbone) -> Tensor:
    with torch.no_grad():
        activation: Tensor = backbone.trunk(example_picture(backbone))
    return activation


def chosen_device(name: str) -> torch.device:
    """auto takes CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
