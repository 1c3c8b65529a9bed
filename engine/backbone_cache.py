"""Backbones kept in memory: each built once for learning, compiled once for serving.

Asking for one that is ready never waits. Callers who ask for the same one wait for one load, in a thread of its own.
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
from core.state import Weights, with_weights
from engine import preparation
from engine.compiled_backbone import CompiledBackbone
from engine.compiled_module import Engine, choose_engine
from engine.pretrained import as_it_comes
from engine.recently_used import RecentlyUsed
from engine.single_flight import Busy, SingleFlight, already

KEPT = 8  # backbones in memory: an administrator may have tried any number of them
SECONDS_OF_FAILURE = 60.0  # during which a backbone that could not be prepared is not tried again


class BackboneCache:
    """A process that only serves never asks for a built backbone, and saves its memory."""

    def __init__(
        self,
        device: torch.device,
        engine: Engine,
        folder: Path,
        prepare_seconds: float = preparation.SECONDS,
        failure_seconds: float = SECONDS_OF_FAILURE,
        weights: Path | None = None,
    ) -> None:
        self.device = device
        self.engine = choose_engine(engine, device)
        self.folder = folder
        self.prepare_seconds = prepare_seconds
        self.failure_seconds = failure_seconds
        self.weights = weights  # a folder of weight files
        self._closed = False
        self._preparing = threading.Lock()  # one at a time: it takes a core and much memory
        self._built: RecentlyUsed[str, Backbone] = RecentlyUsed(KEPT)
        # One at a time: two would draw from the same random numbers.
        self._builds: SingleFlight[str, Backbone] = SingleFlight("backbones", at_once=1, most=KEPT)
        self._compiled: RecentlyUsed[str, CompiledBackbone] = RecentlyUsed(KEPT)
        self._loads: SingleFlight[str, CompiledBackbone] = SingleFlight("backbones", at_once=4, most=2 * KEPT)
        self._failures: RecentlyUsed[str, tuple[float, BackboneError]] = RecentlyUsed(100)

    def pretrained(self, name: str) -> Backbone:
        """The backbone with the weights that it comes with."""
        return self._built.get(name) or self._builds.start(name, partial(self._build, name)).result()

    def trained(self, name: str, weights: Weights) -> Backbone:
        """A copy of the backbone with these weights."""
        return with_weights(self.pretrained(name), weights)

    def compiled(self, name: str, seconds: float | None = None) -> CompiledBackbone:
        """Raises Busy if it is not ready after this many seconds."""
        load = self.load(name)
        if not wait([load], seconds).done:
            raise Busy(f"the backbone {name} is being prepared for serving", retry_seconds=10)
        return load.result()

    def load(self, name: str) -> "Future[CompiledBackbone]":
        """As `compiled`, without waiting. Raises UnknownBackbone, or why it could not be prepared a moment ago."""
        backbones.require_known(name)
        compiled = self._compiled.get(name)
        if compiled is not None:
            return already(compiled)
        failure = self._failures.get(name)
        if failure is not None and time.monotonic() < failure[0]:
            raise failure[1]
        return self._loads.start(name, partial(self._load, name))

    def close(self) -> None:
        """Stops a preparation that is under way, with its process. Takes no lock: a signal handler may call it."""
        self._closed = True

    def _build(self, name: str) -> Backbone:
        return self._built.get(name) or self._built.put(name, as_it_comes(name, self.weights))

    def _load(self, name: str) -> CompiledBackbone:
        return self._compiled.get(name) or self._compiled.put(name, self._compile(name))

    def _compile(self, name: str) -> CompiledBackbone:
        if self.engine == "torch":
            return CompiledBackbone.on_torch(self.pretrained(name), self.device)
        return preparation.find(name, self.folder, self.weights) or self._prepare(name)

    def _prepare(self, name: str) -> CompiledBackbone:
        if not self._preparing.acquire(blocking=False):
            raise Busy(f"another backbone is being prepared, one at a time; {name} has to wait", retry_seconds=30)
        try:
            return preparation.prepare(name, self.folder, self.prepare_seconds, lambda: self._closed, self.weights)
        except BackboneError as error:
            self._failures.drop(lambda other: other == name)
            self._failures.put(name, (time.monotonic() + self.failure_seconds, error))
            raise
        finally:
            self._preparing.release()


def choose_device(name: str) -> torch.device:
    """auto takes CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
