"""Networks kept warm: each backbone built once for learning, made ready once for serving."""

import threading
from pathlib import Path

import torch

from core import backbones
from core.backbones import Backbone
from core.inference import Engine, chosen
from core.kit import Kit
from core.state import with_weights
from learners.loading import Trained
from learners.preparing import prepared


class Networks:
    """Built on first use and kept. Who only serves never asks for a backbone, and is spared its memory."""

    def __init__(self, device: torch.device, engine: Engine, cache: Path) -> None:
        self.device = device
        self.engine = chosen(engine, device)
        self.cache = cache
        self._building = threading.RLock()  # one at a time: two would draw from the same random numbers
        self._backbones: dict[str, Backbone] = {}
        self._kits: dict[str, Kit] = {}

    def pretrained(self, name: str) -> Backbone:
        """The backbone as it comes."""
        with self._building:
            if name not in self._backbones:
                self._backbones[name] = backbones.as_it_comes(name)
            return self._backbones[name]

    def trained(self, name: str, network: Trained) -> Backbone:
        return with_weights(self.pretrained(name), network.weights)

    def kit(self, name: str) -> Kit:
        with self._building:
            if name not in self._kits:
                self._kits[name] = self._made(name)
            return self._kits[name]

    def _made(self, name: str) -> Kit:
        if self.engine == "torch":
            return Kit.of(self.pretrained(name), self.device)
        return prepared(name, self.cache)


def chosen_device(name: str) -> torch.device:
    """auto takes CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
