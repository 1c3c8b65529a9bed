"""BackboneCache kept warm: each backbone built once for learning, made ready once for serving.

Who asks for one that is ready never waits. Two who ask for the same one wait for one load, in a thread of its own.
"""

import threading
import time
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path

import torch

from core import backbones
from core.backbones import Backbone
from core.errors import BackboneError
from core.state import with_weights
from engine import preparation as preparing
from engine.compiled_backbone import CompiledBackbone
from engine.compiled_module import Engine, choose_engine
from engine.recently_used import RecentlyUsed
from engine.single_flight import Busy, SingleFlight, already
from learners.loading import VersionWeights

KEPT = 8  # backbones in memory: an administrator may have tried any number of them
SECONDS_OF_FAILURE = 60.0  # in which what could not be prepared is not tried again


class BackboneCache:
    """Built on first use and kept. Who only serves never asks for a backbone, and is spared its memory."""

    def __init__(
        self, device: torch.device, engine: Engine, cache: Path, prepare_seconds: float = preparing.SECONDS
    ) -> None:
        self.device = device
        self.engine = choose_engine(engine, device)
        self.cache = cache
        self.prepare_seconds = prepare_seconds
        self._closed = False
        self._preparing = threading.Lock()  # one at a time: it takes a core and much memory
        self._backbones: RecentlyUsed[str, Backbone] = RecentlyUsed(KEPT)
        # One at a time: two would draw from the same random numbers.
        self._builds: SingleFlight[str, Backbone] = SingleFlight("backbones", at_once=1, most=KEPT)
        self._kits: RecentlyUsed[str, CompiledBackbone] = RecentlyUsed(KEPT)
        self._loads: SingleFlight[str, CompiledBackbone] = SingleFlight("backbones", at_once=4, most=2 * KEPT)
        self._failures: RecentlyUsed[str, tuple[float, BackboneError]] = RecentlyUsed(100)

    def pretrained(self, name: str) -> Backbone:
        """The backbone as it comes."""
        return self._backbones.get(name) or self._builds.start(name, partial(self._build, name)).result()

    def trained(self, name: str, network: VersionWeights) -> Backbone:
        return with_weights(self.pretrained(name), network.weights)

    def kit(self, name: str, seconds: float | None = None) -> CompiledBackbone:
        """The backbone made ready for serving; raises Busy if it is not after so many seconds."""
        load = self.loading(name)
        if not wait([load], seconds).done:
            raise Busy(f"the backbone {name} is being made ready for serving", retry_seconds=10)
        return load.result()

    def loading(self, name: str) -> "Future[CompiledBackbone]":
        """As `kit`, without waiting. Raises UnknownBackbone, or why it could not be prepared a moment ago."""
        backbones.require_known(name)
        kit = self._kits.get(name)
        if kit is not None:
            return already(kit)
        failure = self._failures.get(name)
        if failure is not None and time.monotonic() < failure[0]:
            raise failure[1]
        return self._loads.start(name, partial(self._load, name))

    def close(self) -> None:
        """Ends a preparation that is under way, with its process. Takes no lock: a signal's handler may call it."""
        self._closed = True

    def _build(self, name: str) -> Backbone:
        return self._backbones.get(name) or self._backbones.put(name, backbones.as_it_comes(name))

    def _load(self, name: str) -> CompiledBackbone:
        return self._kits.get(name) or self._kits.put(name, self._made(name))

    def _made(self, name: str) -> CompiledBackbone:
        if self.engine == "torch":
            return CompiledBackbone.on_torch(self.pretrained(name), self.device)
        return preparing.found(name, self.cache) or self._prepared(name)

    def _prepared(self, name: str) -> CompiledBackbone:
        if not self._preparing.acquire(blocking=False):
            raise Busy(f"another backbone is being prepared, one at a time; {name} has to wait", retry_seconds=30)
        try:
            return preparing.prepared(name, self.cache, self.prepare_seconds, lambda: self._closed)
        except BackboneError as error:
            self._failures.drop(lambda other: other == name)
            self._failures.put(name, (time.monotonic() + SECONDS_OF_FAILURE, error))
            raise
        finally:
            self._preparing.release()


def chosen_device(name: str) -> torch.device:
    """auto takes CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
