"""What a caller changes of a model, each in one transaction: all of it is kept when the answer goes out, or nothing.

A change is made on top of the version that this process serves; where the head has moved on meanwhile, `Moved` says so
and nothing is written.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from sqlalchemy.orm import Session
from torch import Tensor

from core.bank import ClassId
from engine.single_flight import Busy
from engine.version_cache import LoadedVersion, VersionCache
from learners.blobs import from_blob
from learners.taught_class import Taught, detect_unknown_with, taught
from learners.unknown_detection import detect_unknown
from messaging.notifier import Notifier
from service.problems import Problem
from service.schemas import ClassBody, Outlier, SessionBody, TaughtBody
from service.uploads import Upload
from store import bank_rows, catalogue, classes, idempotency, sessions, versions
from store.bank_rows import PrototypeRow
from store.classes import StoredImage
from store.database import Database
from store.errors import LimitReached
from store.models import ClassRow, Model, ModelId, SessionId, Version, VersionNumber
from store.settings import Settings

FAR = "this picture lies far from the others of its class; is it the right one?"


class Moved(Exception):
    """The head is not the version that was worked on."""


@dataclass(frozen=True)
class Idempotency:
    key: str
    fingerprint: str


@dataclass(frozen=True)
class Lesson:
    """Pictures of a class as a caller sent them."""

    uploads: Sequence[Upload]
    request_id: str
    again: Idempotency | None
    scaled: Sequence[bytes | None] | None = None  # a small form of each that is costly to decode


@dataclass(frozen=True)
class Outcome:
    """An answer, and the session to wait for."""

    body: dict[str, Any]
    session_id: SessionId | None


class Changes:
    """All methods wait for the database: call them in a thread."""

    def __init__(self, database: Database, settings: Settings, version_cache: VersionCache, notifier: Notifier) -> None:
        self.database = database
        self.settings = settings
        self.version_cache = version_cache
        self.notifier = notifier

    def recalled(self, model: str, again: Idempotency) -> Outcome | None:
        """What the same request was answered before."""
        with self.database.read() as db:
            return _recalled(db, catalogue.get(db, model).id, again)

    def require_free(self, model_id: ModelId, name: str) -> None:
        with self.database.read() as db:
            classes.require_free(db, model_id, name)

    def stored_shots(self, model_id: ModelId, class_id: int, more: int) -> list[int]:
        """The keys of those of a class that is to get so many more."""
        with self.database.read() as db:
            classes.get(db, model_id, class_id)
            stored = classes.shot_keys(db, model_id, class_id)
        if len(stored) + more > self.settings.max_shots:
            raise LimitReached(
                f"class {class_id} has {len(stored)} shots; {more} more would be beyond {self.settings.max_shots}"
            )
        return stored

    def stored_shot(self, key: int) -> StoredImage:
        """One at a time: together they may have gigabytes."""
        with self.database.read() as db:
            return classes.shot(db, key)

    def teach(self, served: LoadedVersion, name: str, lesson: Lesson, features: Tensor) -> Outcome:
        """A new class from the features of its shots, (S, V, M)."""
        with self.database.write() as db:
            model = _head(db, served)
            known = _recalled(db, model.id, lesson.again)
            if known:
                return known
            classes.require_free(db, model.id, name)
            if len(served.classifier) >= self.settings.max_classes:
                raise LimitReached(f"the model has {len(served.classifier)} classes, of {self.settings.max_classes}")
            class_id = ClassId(model.last_class + 1)
            new = taught(served.classifier, class_id, features)
            session = self._enqueue(db, model, lesson.request_id)
            since = VersionNumber(model.last_version + 1)
            row = classes.add(db, model, name, shots=len(lesson.uploads), since=since, session_id=session)
            classes.add_shots(db, model.id, row.id, (upload.data for upload in lesson.uploads), lesson.scaled)
            version = _provisional(db, model, served, class_id, new)
            outcome = _outcome(db, row, session, version, _outliers(new, lesson.uploads))
            _remember(db, model.id, lesson.again, outcome)
        self.version_cache.advance(served, version, [new.row(row.id)], {**served.names, row.id: name})
        self._tell(served.model, session)
        return outcome

    def add_shots(
        self, served: LoadedVersion, class_id: int, lesson: Lesson, already: int, features: Tensor
    ) -> Outcome:
        """More shots of a class; `features` are those of the `already` stored ones and of the new ones."""
        own = ClassId(class_id)
        with self.database.write() as db:
            model = _head(db, served)
            known = _recalled(db, model.id, lesson.again)
            if known:
                return known
            row = classes.get(db, model.id, class_id)
            if classes.count_stored_shots(db, model.id, class_id) != already:
                raise Problem(409, "Conflict", f"class {class_id} was given other shots at the same time; try again")
            earlier = _earlier(db, served, row, already)
            new = taught(served.classifier, own, features if earlier is None else features[already:], earlier=earlier)
            row.shots, row.revision = new.shots, row.revision + 1
            session = self._enqueue(db, model, lesson.request_id)
            if earlier is None:
                row.status, row.session_id = "provisional", session
            classes.add_shots(db, model.id, class_id, (upload.data for upload in lesson.uploads), lesson.scaled)
            version = _provisional(db, model, served, own, new)
            outcome = _outcome(db, row, session, version, _outliers(new, lesson.uploads))
            _remember(db, model.id, lesson.again, outcome)
        self.version_cache.advance(served, version, [new.row(class_id)], served.names)
        self._tell(served.model, session)
        return outcome

    def delete(self, served: LoadedVersion, class_id: int) -> None:
        with self.database.write() as db:
            model = _head(db, served)
            classes.erase(db, model.id, class_id)
            if class_id not in served.classifier.known_ids:
                return
            held_out = {c: found for c, found in served.held_out.items() if c != class_id}
            open_world = detect_unknown(held_out, torch.zeros(0))
            gone = [PrototypeRow(class_id, None, 0, restart=True)]
            version = versions.add(
                db,
                model,
                versions.NewVersion(
                    "delete",
                    parent=served.version,
                    classes=len(served.classifier) - 1,
                    temperature=served.version.temperature,
                    threshold=open_world.threshold,
                    details={"class": class_id, "unknown": open_world.details()},
                    prototypes=gone,
                ),
            )
        self.version_cache.advance(served, version, gone, served.names)
        self._tell(served.model)

    def rename(self, model: str, class_id: int, name: str) -> ClassBody:
        with self.database.write() as db:
            row = catalogue.locked(db, catalogue.get(db, model).id)
            renamed = classes.rename(db, row, class_id, name)
        self._tell(model)
        served = self.version_cache.refresh(model)
        return ClassBody.of(renamed, known=class_id in served.classifier.known_ids)

    def activate(self, model: str, number: int, request_id: str) -> Version:
        with self.database.write() as db:
            row = catalogue.locked(db, catalogue.get(db, model).id)
            version = versions.activate(db, row, number, classes.living(db, row.id))
            known = set(bank_rows.class_ids(db, row.id, version.number))
            waits = any(waiting.id in known for waiting in classes.waiting(db, row.id))
            # The session that was theirs may have found another head.
            session = self._enqueue(db, row, request_id) if waits else None
        self._tell(model, session)
        with suppress(Busy):  # it is active all the same; this process catches up when its backbone is there
            self.version_cache.refresh(model)
        return version

    def _enqueue(self, db: Session, model: Model, request_id: str) -> SessionId:
        settings = self.settings
        return sessions.enqueue(
            db,
            model,
            delay=settings.session_delay,
            patience=settings.session_patience,
            queue=settings.session_queue,
            request_id=request_id,
        ).id

    def _tell(self, model: str, session: SessionId | None = None) -> None:
        """After the commit: whoever hears of it finds it in the table."""
        self.notifier.model_changed(model)
        if session is not None:
            self.notifier.session_queued(session, self.settings.session_queue, self.settings.session_delay)


def _head(db: Session, served: LoadedVersion) -> Model:
    """The model's row, locked, if its head is the version at hand."""
    model = catalogue.locked(db, served.model_id)
    if model.head != served.number:
        raise Moved
    return model


def _recalled(db: Session, model_id: ModelId, again: Idempotency | None) -> Outcome | None:
    known = again and idempotency.recall(db, model_id, again.key, again.fingerprint)
    return Outcome(known.answer, known.session_id) if known else None


def _remember(db: Session, model_id: ModelId, again: Idempotency | None, outcome: Outcome) -> None:
    if again:
        idempotency.remember(
            db,
            model_id,
            again.key,
            again.fingerprint,
            status=202,
            answer=outcome.body,
            session_id=outcome.session_id,
        )


def _earlier(db: Session, served: LoadedVersion, row: ClassRow, already: int) -> Tensor | None:
    """The prototype of a class that more pictures stand behind than are stored: those of a base session."""
    if row.shots <= already:
        return None
    known = bank_rows.prototype(db, row.model_id, served.number, row.id)
    return from_blob(known.vector) if known and known.vector else None


def _provisional(db: Session, model: Model, served: LoadedVersion, class_id: ClassId, new: Taught) -> Version:
    open_world = detect_unknown_with(served.classifier, served.held_out, class_id, new)
    return versions.add(
        db,
        model,
        versions.NewVersion(
            "provisional",
            parent=served.version,
            classes=len(served.classifier) + (class_id not in served.classifier.known_ids),
            temperature=served.version.temperature,
            threshold=open_world.threshold,
            details={"class": class_id, "unknown": open_world.details()},
            prototypes=[new.row(class_id)],
        ),
    )


def _outliers(new: Taught, uploads: Sequence[Upload]) -> list[Outlier]:
    """Which of the uploads lie far from their siblings; they are the last of those that were looked at."""
    before = len(new.held_out) - len(uploads)
    return [
        Outlier(
            index=uploads[place - before].index,
            filename=uploads[place - before].filename,
            distance=round(float(new.held_out[place]), 6),
            message=FAR,
        )
        for place in new.outliers
        if place >= before
    ]


def _outcome(db: Session, row: ClassRow, session: SessionId, version: Version, outliers: list[Outlier]) -> Outcome:
    body = TaughtBody.model_validate(
        {
            "class": ClassBody.of(row, known=True),
            "session": SessionBody.of(sessions.get(db, row.model_id, session)),
            "version": version.number,
            "outliers": outliers,
        }
    )
    return Outcome(body.model_dump(mode="json", by_alias=True), session)
