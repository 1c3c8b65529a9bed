"""The versions that answer: one current for each model, a few pinned ones, swapped by one assignment.

Predictions read from here and from nowhere else: with the database away they go on as before.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.bank import ClassId
from core.classifier import Learned, NearestClassMean, Prediction
from learners.blobs import from_blob
from learners.loading import HeldOut, certainty_of, classifier
from service.engine.network import Network, NetworkLoader
from store import catalogue, classes, versions
from store.database import Database
from store.errors import NotThere
from store.models import Model, ModelId, Version
from store.versions import PrototypeRow

log = structlog.get_logger()

PINNED = 4  # versions beside the current ones that are kept ready


@dataclass(frozen=True, eq=False)
class Served:
    """One version, whole: whoever holds it is untouched by a swap."""

    model_id: ModelId
    model: str
    backbone: str
    version: Version
    network: Network
    classifier: NearestClassMean
    held_out: HeldOut
    names: Mapping[int, str]
    renames: int

    @property
    def number(self) -> int:
        return self.version.number

    def name(self, class_id: int) -> str:
        return self.names.get(class_id, f"class {class_id}")

    def following(self, version: Version, changes: list[PrototypeRow], names: Mapping[int, str]) -> "Served":
        """The next version on the same network: only what changed is read."""
        learned = {
            ClassId(row.class_id): None if row.vector is None else Learned(from_blob(row.vector), row.shots)
            for row in changes
        }
        held_out = {class_id: found for class_id, found in self.held_out.items() if class_id not in learned}
        held_out |= {ClassId(row.class_id): from_blob(row.held_out) for row in changes if row.held_out}
        classifier = self.classifier.changed(learned, certainty_of(version))
        return replace(self, version=version, classifier=classifier, held_out=held_out, names=names)


@dataclass(frozen=True)
class Nearest:
    """The nearest classes of a version; equal ones are answered together."""

    served: Served
    top_k: int

    @property
    def together(self) -> int:
        return self.served.classifier.best_at_once

    def __call__(self, features: torch.Tensor) -> list[Prediction]:
        return self.served.classifier.predict(features, self.top_k)


class Shelf:
    """All methods may be called from any thread."""

    def __init__(self, database: Database, loader: NetworkLoader) -> None:
        self.database = database
        self.loader = loader
        self._current: dict[str, Served] = {}
        self._pinned: OrderedDict[tuple[ModelId, int], Served] = OrderedDict()
        self._loading = threading.Lock()

    def current(self, model: str) -> Served:
        """The version in force as this process knows it."""
        served = self._current.get(model)
        return served if served is not None else self.refresh(model)

    def at(self, model: str, number: int | None) -> Served:
        """A version by its number, or the one in force."""
        current = self.current(model)
        if number is None or number == current.number:
            return current
        key = (current.model_id, number)
        return self._used(key) or self._pin(current, key)

    def ready(self, model: str, number: int | None) -> Served | None:
        """As `at`, if it is at hand: waits for nothing, so it may be asked on the event loop."""
        current = self._current.get(model)
        if current is None or number is None or number == current.number:
            return current
        return self._used((current.model_id, number))

    def _used(self, key: tuple[ModelId, int]) -> Served | None:
        """A pinned version, which then is the last to be given up."""
        with contextlib.suppress(KeyError):  # given up a moment ago, by another thread
            self._pinned.move_to_end(key)
        return self._pinned.get(key)

    def newest_names(self, served: Served) -> Mapping[int, str]:
        """The names of its classes as they are now: a version keeps classes, not what they were called."""
        current = self._current.get(served.model)
        return served.names if current is None or current.model_id != served.model_id else current.names

    def refresh(self, model: str) -> Served:
        """Load the head if it is not what is served, and swap it in."""
        with self._loading, self.database.read() as db:
            row = catalogue.get(db, model)
            known = self._current.get(model)
            if known is not None and (known.model_id, known.number, known.renames) == (row.id, row.head, row.renames):
                return known
            served = self._loaded(db, row, known)
            self._current[model] = served
        log.info("serving", model=model, version=served.number, classes=len(served.classifier))
        return served

    def advance(self, served: Served, version: Version, changes: list[PrototypeRow], names: Mapping[int, str]) -> None:
        """Swap in what this process itself has just written on top of `served`; anything else needs a refresh."""
        with self._loading:
            if self._current.get(served.model) is served:
                self._current[served.model] = served.following(version, changes, names)
                return
        self.refresh(served.model)

    def poll(self) -> None:
        """Catch up with what other processes have done; a model that cannot be loaded holds up no other."""
        with self.database.read() as db:
            heads = {row.name: row for row in db.scalars(select(Model))}
        trouble: Exception | None = None
        for name, served in list(self._current.items()):
            row = heads.get(name)
            if row is None or row.id != served.model_id:
                self._current.pop(name, None)
            elif (row.head, row.renames) != (served.number, served.renames):
                try:
                    self.refresh(name)
                except Exception as error:
                    trouble = error
        if trouble is not None:
            raise trouble

    def served(self) -> list[Served]:
        return list(self._current.values())

    def _loaded(self, db: Session, row: Model, known: Served | None) -> Served:
        version = versions.servable(db, row.id, row.head)
        names = classes.names(db, row.id)
        if known is not None and known.model_id == row.id and known.network.key == (row.id, version.weights):
            changes = versions.changes(db, row.id, known.number, version.number)
            if changes is not None:
                return replace(known.following(version, changes, names), renames=row.renames)
        return self._whole(db, row, version, names)

    def _whole(self, db: Session, row: Model, version: Version, names: Mapping[int, str]) -> Served:
        network = self.loader.load(db, row.backbone, version)
        known, held_out = classifier(db, version, network.space, network.dim)
        return Served(row.id, row.name, row.backbone, version, network, known, held_out, names, row.renames)

    def _pin(self, current: Served, key: tuple[ModelId, int]) -> Served:
        with self._loading, self.database.read() as db:
            row = db.get(Model, key[0])
            if row is None:
                raise NotThere("the model was deleted")
            version = versions.servable(db, *key)
            pinned = self._whole(db, row, version, current.names)
        self._pinned[key] = pinned
        while len(self._pinned) > PINNED:
            self._pinned.popitem(last=False)
        return pinned
