"""The versions that answer: the active one of each model, and a few that callers pinned with `?version=n`.

A swap is one assignment. Predictions read from here and from nowhere else: without the database they go on as before.
"""

import asyncio
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

import structlog
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from engine.network import Loaded
from engine.pinned_versions import PinnedVersions
from engine.single_flight import Busy, SingleFlight

log = structlog.get_logger()

PINNED = 4  # versions beside the active ones that are kept ready
PINNED_CLASSES = 200_000  # of all pinned versions in memory; 100,000 of 1280 numbers each take 512 MB
MAX_FIRST_LOADS = 16  # models that load for the first time, or wait for it; two load at a time
MAX_WAITING_THREADS = 8  # for a first load: the other threads go on answering
LOOKUP_THREADS = 4  # that ask the database for versions that are not loaded
MAX_LOOKUPS_WAITING = 200  # callers that wait for one of these threads
SECONDS_TO_SWAP = 2.0  # within which versions that other processes made should be active


class Head(NamedTuple):
    """What tells whether a loaded version is still the active one."""

    model_id: int
    backbone: str
    number: int
    renames: int  # how often classes were renamed: names are not part of a version


class Versioned(Loaded, Protocol):
    """A version of a model in memory."""

    @property
    def model(self) -> str: ...

    @property
    def head(self) -> Head: ...

    @property
    def names(self) -> Mapping[int, str]: ...


Version = TypeVar("Version", bound=Versioned)


class Source(Protocol[Version]):
    """Where versions are loaded from. All methods may wait for the database."""

    def head(self, model: str) -> Head: ...

    def heads(self) -> Mapping[str, Head]: ...

    def load_head(self, model: str, head: Head, known: Version | None) -> Version: ...

    def size_of(self, model: str, number: int) -> tuple[int, int]: ...

    def load(self, model: str, number: int, active: Version | None) -> Version: ...

    def keep_only(self, model_ids: Collection[int]) -> None: ...


class VersionCache(Generic[Version]):
    """All methods may be called from any thread.

    While something loads, no lock is held for more than one model. Asking for an active version that is loaded never
    waits, whatever else is being loaded.
    """

    def __init__(self, source: Source[Version], *, pinned_classes: int = PINNED_CLASSES) -> None:
        self.source = source
        self.pinned: PinnedVersions[Version] = PinnedVersions(PINNED, pinned_classes)
        self._active: dict[str, Version] = {}
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # of models that change now
        self._locks_lock = threading.Lock()
        self._first_loads: SingleFlight[str, Version] = SingleFlight("models", at_once=2, most=MAX_FIRST_LOADS)
        self._swaps: SingleFlight[str, Version] = SingleFlight("new versions", at_once=2)
        self._waiting = threading.BoundedSemaphore(MAX_WAITING_THREADS)
        self._lookups = CapacityLimiter(LOOKUP_THREADS)

    def active(self, model: str) -> Version:
        """The active version as this process knows it. Raises Busy when too many threads wait for a first load."""
        version = self._active.get(model)
        if version is not None:
            return version
        if not self._waiting.acquire(blocking=False):
            raise Busy("models are being loaded, and many callers wait for that already", retry_seconds=1)
        try:
            return self.start_loading(model, None).result()
        finally:
            self._waiting.release()

    def all_active(self) -> list[Version]:
        return list(self._active.values())

    def ready(self, model: str, number: int | None) -> Version | None:
        """A version by its number, or the active one, if it is in memory. Never waits: safe on the event loop."""
        active = self._active.get(model)
        if active is None or number is None or number == active.head.number:
            return active
        return self.pinned.get((active.head.model_id, number))

    async def load(self, model: str, number: int | None) -> Version:
        """As `ready`, for one that is not in memory. No thread waits while it loads."""
        if self._lookups.statistics().tasks_waiting >= MAX_LOOKUPS_WAITING:
            raise Busy("many callers ask for versions that are not loaded", retry_seconds=1)
        return await asyncio.wrap_future(await run_sync(self.start_loading, model, number, limiter=self._lookups))

    def start_loading(self, model: str, number: int | None) -> "Future[Version]":
        """Asks the database first, so that nothing loads for a model or number that does not exist."""
        if number is None:
            self.source.head(model)
            return self._first_loads.start(model, partial(self.refresh, model))
        model_id, classes = self.source.size_of(model, number)
        return self.pinned.load((model_id, number), classes, lambda: self._load_pinned(model, number))

    def _load_pinned(self, model: str, number: int) -> Version:
        """Looks the active version up only when it runs: one that waits must not keep an older one in memory."""
        return self.source.load(model, number, self._active.get(model))

    def newest_names(self, version: Version) -> Mapping[int, str]:
        """The names of its classes as they are now: a pinned version knows them as they were when it was loaded."""
        active = self._active.get(version.model)
        same_model = active is not None and active.head.model_id == version.head.model_id
        return active.names if active is not None and same_model else version.names

    def refresh(self, model: str) -> Version:
        """Load the head if it is not the active version, and swap it in."""
        with self._lock_of(model):
            head, known = self.source.head(model), self._active.get(model)
            if known is not None and known.head == head:
                return known
            version = self.source.load_head(model, head, known)
            self._active[model] = version
        log.info("serving", model=model, version=version.head.number, classes=len(version.classifier))
        return version

    def advance(self, known: Version, version: Version) -> None:
        """Swap in what this process itself has just published on top of `known`; otherwise catch up."""
        with self._lock_of(known.model):
            if self._active.get(known.model) is known:
                self._active[known.model] = version
                return
        self.refresh(known.model)

    def poll(self) -> None:
        """Catch up with other processes. A model that cannot be loaded, or not soon, delays no other."""
        heads = self.drop_deleted()
        swaps = [
            self._swaps.start(model, partial(self.refresh, model))
            for model, version in list(self._active.items())
            if model in heads and heads[model] != version.head
        ]
        for error in filter(None, [swap.exception() for swap in wait(swaps, SECONDS_TO_SWAP).done]):
            raise error

    def drop_deleted(self) -> Mapping[str, Head]:
        """Drop what belongs to models that were deleted, or deleted and made again. Returns the heads of all models."""
        heads = self.source.heads()
        for model, version in list(self._active.items()):
            if model not in heads or heads[model].model_id != version.head.model_id:
                self._active.pop(model, None)
        model_ids = {head.model_id for head in heads.values()}
        self.pinned.keep_only(model_ids)
        self.source.keep_only(model_ids)
        return heads

    def _lock_of(self, model: str) -> threading.Lock:
        with self._locks_lock:
            return self._locks.setdefault(model, threading.Lock())
