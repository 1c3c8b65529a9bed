"""The versions that answer: one current for each model, a few pinned ones, swapped by one assignment.

Predictions read from here and from nowhere else: with the database away they go on as before.
"""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakValueDictionary

import structlog
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.bank import ClassId
from core.classifier import Learned
from engine.class_search import ClassSearch
from engine.network import Network
from engine.network_loader import NetworkLoader
from engine.pinned_versions import PinnedVersions
from engine.single_flight import Busy, SingleFlight
from learners.blobs import from_blob
from learners.loading import HeldOut, certainty_of, classifier
from store import catalogue, classes, versions
from store.database import Database
from store.models import Model, ModelId, Version
from store.versions import PrototypeRow

log = structlog.get_logger()

PINNED = 4  # versions beside the current ones that are kept ready
PINNED_CLASSES = 200_000  # of all pinned versions in memory; 100,000 of 1280 numbers each take 512 MB
MOST_FIRST_LOADS = 16  # models that load for the first time, or wait for it; two load at a time
MOST_WAITING = 8  # threads that wait for a first load; they are the ones that answer everybody else
LOOKUPS = 4  # threads that ask the database for versions that are not loaded
MOST_LOOKUPS = 200  # callers that wait for one of these threads
SECONDS_TO_SWAP = 2.0  # in which versions that other processes made should be in force


@dataclass(frozen=True, eq=False)
class LoadedVersion:
    """One version, whole: whoever holds it is untouched by a swap."""

    model_id: ModelId
    model: str
    backbone: str
    version: Version
    network: Network
    classifier: ClassSearch
    held_out: HeldOut
    names: Mapping[int, str]
    renames: int

    @property
    def number(self) -> int:
        return self.version.number

    def name(self, class_id: int) -> str:
        return self.names.get(class_id, f"class {class_id}")

    def following(self, version: Version, changes: list[PrototypeRow], names: Mapping[int, str]) -> "LoadedVersion":
        """The next version on the same network: only what changed is read."""
        learned = {
            ClassId(row.class_id): None if row.vector is None else Learned(from_blob(row.vector), row.shots)
            for row in changes
        }
        held_out = {class_id: found for class_id, found in self.held_out.items() if class_id not in learned}
        held_out |= {ClassId(row.class_id): from_blob(row.held_out) for row in changes if row.held_out}
        classifier = self.classifier.changed(learned, certainty_of(version))
        return replace(self, version=version, classifier=classifier, held_out=held_out, names=names)


class VersionCache:
    """All methods may be called from any thread.

    No lock is held for more than one model while anything loads: who asks for an active version that is loaded never
    waits, whatever else is being loaded or prepared.
    """

    def __init__(self, database: Database, loader: NetworkLoader, *, pinned_classes: int = PINNED_CLASSES) -> None:
        self.database = database
        self.loader = loader
        self.pinned = PinnedVersions(PINNED, pinned_classes)
        self._current: dict[str, LoadedVersion] = {}
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # of models that change now
        self._locks_lock = threading.Lock()
        self._first_loads: SingleFlight[str, LoadedVersion] = SingleFlight("models", at_once=2, most=MOST_FIRST_LOADS)
        self._swaps: SingleFlight[str, LoadedVersion] = SingleFlight("new versions", at_once=2)
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        self._lookups = CapacityLimiter(LOOKUPS)

    def current(self, model: str) -> LoadedVersion:
        """The version in force as this process knows it. Raises Busy where too many threads wait for a first load."""
        served = self._current.get(model)
        if served is not None:
            return served
        if not self._waiting.acquire(blocking=False):
            raise Busy("models are being loaded, and many callers wait for that already", retry_seconds=1)
        try:
            return self.find(model, None).result()
        finally:
            self._waiting.release()

    def at(self, model: str, number: int | None) -> LoadedVersion:
        """A version by its number, or the one in force."""
        return self.ready(model, number) or self.find(model, number).result()

    async def loaded(self, model: str, number: int | None) -> LoadedVersion:
        """As `at`, for the event loop: while it loads, no thread waits for it."""
        if self._lookups.statistics().tasks_waiting >= MOST_LOOKUPS:
            raise Busy("many callers ask for versions that are not loaded", retry_seconds=1)
        return await asyncio.wrap_future(await run_sync(self.find, model, number, limiter=self._lookups))

    def ready(self, model: str, number: int | None) -> LoadedVersion | None:
        """As `at`, if it is at hand: waits for nothing, so it may be asked on the event loop."""
        current = self._current.get(model)
        if current is None or number is None or number == current.number:
            return current
        return self.pinned.get((current.model_id, number))

    def find(self, model: str, number: int | None) -> "Future[LoadedVersion]":
        """The load of a version. Asks the database first, so that nothing loads for a number that is not served."""
        with self.database.read() as db:
            row = catalogue.get(db, model)
            if number is None:
                return self._first_loads.start(model, partial(self.refresh, model))
            version = versions.servable(db, row.id, number)
        return self.pinned.load((row.id, number), version.classes, partial(self._pin, row, number))

    def newest_names(self, served: LoadedVersion) -> Mapping[int, str]:
        """The names of its classes as they are now: a version keeps classes, not what they were called."""
        current = self._current.get(served.model)
        return served.names if current is None or current.model_id != served.model_id else current.names

    def refresh(self, model: str) -> LoadedVersion:
        """Load the head if it is not what is served, and swap it in."""
        with self._lock_of(model):
            with self.database.read() as db:
                row = catalogue.get(db, model)
            known = self._current.get(model)
            if known is not None and (known.model_id, known.number, known.renames) == (row.id, row.head, row.renames):
                return known
            if known is None or known.backbone != row.backbone:
                self.loader.kit(row.backbone)  # it may take seconds: not while a transaction is open
            with self.database.read() as db:
                served = self._loaded(db, catalogue.get(db, model), known)
            self._current[model] = served
        log.info("serving", model=model, version=served.number, classes=len(served.classifier))
        return served

    def advance(
        self, served: LoadedVersion, version: Version, changes: list[PrototypeRow], names: Mapping[int, str]
    ) -> None:
        """Swap in what this process itself has just written on top of `served`; anything else needs a refresh."""
        with self._lock_of(served.model):
            if self._current.get(served.model) is served:
                self._current[served.model] = served.following(version, changes, names)
                return
        self.refresh(served.model)

    def poll(self) -> None:
        """Catch up with what other processes have done. A model that cannot be loaded, or not soon, delays no other."""
        rows = self.drop_deleted()
        loaded = [(rows.get(name), served) for name, served in list(self._current.items())]
        swaps = [
            self._swaps.start(row.name, partial(self.refresh, row.name))
            for row, served in loaded
            if row is not None and (row.head, row.renames) != (served.number, served.renames)
        ]
        troubles = [swap.exception() for swap in wait(swaps, SECONDS_TO_SWAP).done]
        for trouble in filter(None, troubles):
            raise trouble

    def drop_deleted(self) -> Mapping[str, Model]:
        """Drop what belongs to models that were deleted, or deleted and made again; the models that there are."""
        with self.database.read() as db:
            rows = {row.name: row for row in db.scalars(select(Model))}
        for name, served in list(self._current.items()):
            if name not in rows or rows[name].id != served.model_id:
                self._current.pop(name, None)
        model_ids = {row.id for row in rows.values()}
        self.pinned.keep_only(model_ids)
        self.loader.keep_only(model_ids)
        return rows

    def served(self) -> list[LoadedVersion]:
        return list(self._current.values())

    def _lock_of(self, model: str) -> threading.Lock:
        with self._locks_lock:
            return self._locks.setdefault(model, threading.Lock())

    def _loaded(self, db: Session, row: Model, known: LoadedVersion | None) -> LoadedVersion:
        version = versions.servable(db, row.id, row.head)
        names = classes.names(db, row.id)
        if known is not None and known.model_id == row.id and known.network.key == (row.id, version.weights):
            changes = versions.changes(db, row.id, known.number, version.number)
            if changes is not None:
                return replace(known.following(version, changes, names), renames=row.renames)
        return self._whole(db, row, version, names)

    def _whole(self, db: Session, row: Model, version: Version, names: Mapping[int, str]) -> LoadedVersion:
        network = self.loader.load(db, row.backbone, version)
        known, held_out = classifier(db, version, network.space, network.dim)
        return LoadedVersion(row.id, row.name, row.backbone, version, network, known, held_out, names, row.renames)

    def _pin(self, row: Model, number: int) -> LoadedVersion:
        self.loader.kit(row.backbone)
        current = self._current.get(row.name)
        with self.database.read() as db:
            version = versions.servable(db, row.id, number)  # again: it had to wait, and may have been dropped since
            same_model = current is not None and current.model_id == row.id
            names = current.names if current and same_model else classes.names(db, row.id)
            return self._whole(db, row, version, names)
