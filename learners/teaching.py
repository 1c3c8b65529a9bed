"""What a caller changes of a model: teach a class, show more shots, delete, rename, activate.

Each change is one transaction: all of it is stored when the caller is answered, or nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import torch
from sqlalchemy.orm import Session
from torch import Tensor

from core.bank import ClassId
from engine.decoder import Upload
from engine.network import Network
from engine.single_flight import Busy
from engine.version_cache import VersionCache
from learners.blobs import from_blob
from learners.measuring import taught_rows
from learners.publishing import Draft, Notifier, on_head, publish
from learners.taught_answer import Idempotency, Outcome, answer_of, outliers_of, recall, remember
from learners.taught_class import UNNUMBERED, TaughtClass, detect_unknown_with, learn_class
from learners.unknown_detection import detect_unknown
from learners.version_loader import LoadedVersion
from store import bank_rows, catalogue, classes, images, sessions, versions
from store.bank_rows import PrototypeRow
from store.classes import StoredImage
from store.database import Database
from store.errors import Conflict, LimitReached
from store.models import ClassRow, Model, ModelId, SessionId, Version, VersionNumber
from store.settings import Settings
from store.versions import NewVersion
from tracing.spans import traceparent


@dataclass(frozen=True, eq=False)
class Lesson:
    """Shots of one class, ready to be learned."""

    shots: Sequence[Upload]
    scaled: Sequence[bytes | None]  # a small form of each shot that is costly to decode
    features: Callable[[Network], Tensor]  # (S, V, M) of the stored shots, if any, and of these, under a network
    request_id: str
    idempotency: Idempotency | None
    also: Callable[[Session], None] = lambda _: None  # to be done in the same transaction


_NOTHING = Outcome({}, None)
_StoreClass = Callable[[Session, Model, SessionId], ClassRow]


@dataclass(frozen=True, eq=False)
class Written:
    """What a transaction has stored on top of `head`; without a version, nothing that is served has changed."""

    outcome: Outcome
    head: LoadedVersion
    version: Version | None = None
    changes: Sequence[PrototypeRow] = ()
    names: Mapping[int, str] = field(default_factory=dict)


class Teaching:
    """All methods wait for the database: call them in a thread."""

    def __init__(
        self, database: Database, settings: Settings, cache: VersionCache[LoadedVersion], notifier: Notifier
    ) -> None:
        self.database = database
        self.settings = settings
        self.cache = cache
        self.notifier = notifier

    def recall(self, model: str, key: Idempotency) -> Outcome | None:
        """What the same request was answered before."""
        with self.database.read() as db:
            return recall(db, catalogue.get(db, model).id, key)

    def require_free(self, model_id: ModelId, name: str) -> None:
        """Raises NameTaken, before the work of learning a class that cannot be stored."""
        with self.database.read() as db:
            classes.require_free(db, model_id, name)

    def stored_shots(self, model_id: ModelId, class_id: int, more: int) -> list[int]:
        """The keys of a class's shots. Raises LimitReached if it cannot have this many more."""
        with self.database.read() as db:
            classes.get(db, model_id, class_id)
            stored = classes.shot_keys(db, model_id, class_id)
        if len(stored) + more > self.settings.max_shots:
            raise LimitReached(
                f"class {class_id} has {len(stored)} shots; {more} more would be beyond {self.settings.max_shots}"
            )
        return stored

    def stored_shot(self, key: int) -> StoredImage:
        """One at a time: together they may take gigabytes."""
        with self.database.read() as db:
            return classes.shot(db, key)

    def teach(self, model: str, name: str, lesson: Lesson) -> Outcome:
        """A new class. `name` is as it is stored."""

        def prepare() -> Draft[Written]:
            head = self.cache.active(model)
            new = learn_class(head.classifier, lesson.features(head.network))

            def store(db: Session, row: Model, session: SessionId) -> ClassRow:
                self.require_room(len(head.classifier))
                since = VersionNumber(row.last_version + 1)
                return classes.add(db, row, name, shots=new.shots, since=since, session_id=session)

            return self._taught(head, new, lesson, store)

        return self.published(model, prepare)

    def add_shots(self, model: str, class_id: int, already: int, lesson: Lesson) -> Outcome:
        """More shots of a class that has `already` stored ones."""

        def prepare() -> Draft[Written]:
            head = self.cache.active(model)
            features, own = lesson.features(head.network), ClassId(class_id)
            earlier = self._earlier(head, class_id, already)
            seen = features if earlier is None else features[already:]
            new = learn_class(head.classifier, seen, own, earlier=earlier)

            def store(db: Session, row: Model, session: SessionId) -> ClassRow:
                taught = classes.get(db, row.id, class_id)
                if classes.count_stored_shots(db, row.id, class_id) != already:
                    raise Conflict(f"class {class_id} was given other shots at the same time; try again")
                taught.shots, taught.revision = new.shots, taught.revision + 1
                if earlier is None:
                    taught.status, taught.session_id = "provisional", session
                return taught

            return self._taught(head, new, lesson, store, own)

        return self.published(model, prepare)

    def delete(self, model: str, class_id: int) -> None:
        """Delete a class and its images. The next version does not know it."""

        def prepare() -> Draft[Written]:
            head = self.cache.active(model)
            left = {own: found for own, found in head.held_out.items() if own != class_id}
            unknown = detect_unknown(left, torch.zeros(0), by_class=head.classifier.space.by_class)
            gone = [PrototypeRow(class_id, None, 0, restart=True)]

            def write(db: Session, row: Model) -> Written:
                classes.erase(db, row.id, class_id)
                if class_id not in head.classifier.known_ids:
                    return Written(_NOTHING, head)
                new = NewVersion(
                    "delete",
                    head.row,
                    classes=len(head.classifier) - 1,
                    temperature=head.row.temperature,
                    threshold=unknown.threshold,
                    details={"class": class_id, "unknown": unknown.details()},
                    prototypes=gone,
                )
                return Written(_NOTHING, head, versions.add(db, row, new), gone, head.names)

            return Draft(on_head(head.model_id, head.number), write)

        self.published(model, prepare)

    def rename(self, model: str, class_id: int, name: str) -> tuple[ClassRow, LoadedVersion]:
        """Give a class another name; versions stay as they are. Returns the class and the active version."""
        with self.database.write() as db:
            row = catalogue.locked(db, catalogue.get(db, model).id)
            renamed = classes.rename(db, row, class_id, name)
        self.notifier.model_changed(model)
        return renamed, self.cache.refresh(model)

    def activate(self, model: str, number: int, request_id: str) -> Version:
        """Make a version the active one, on every replica."""
        with self.database.read() as db:
            model_id = catalogue.get(db, model).id

        def write(db: Session, row: Model) -> tuple[Version, SessionId | None]:
            version = versions.activate(db, row, number, classes.living(db, row.id))
            known = set(bank_rows.class_ids(db, row.id, version.number))
            waits = any(waiting.id in known for waiting in classes.waiting(db, row.id))
            # The session that was theirs may have found another head.
            return version, self.enqueue(db, row, request_id) if waits else None

        any_head = partial(catalogue.locked, model_id=model_id)
        version, session = publish(self.database, lambda: Draft(any_head, write))
        self._notify(model, session)
        with suppress(Busy):  # it is active all the same: this process catches up when its backbone is compiled
            self.cache.refresh(model)
        return version

    def _taught(
        self, head: LoadedVersion, new: TaughtClass, lesson: Lesson, store: _StoreClass, class_id: ClassId = UNNUMBERED
    ) -> "Draft[Written]":
        """A provisional version in which the class is as its shots say."""
        unknown = detect_unknown_with(head.classifier, head.held_out, new, class_id)

        def write(db: Session, model: Model) -> Written:
            known = recall(db, model.id, lesson.idempotency)
            if known:
                return Written(known, head)
            session = self.enqueue(db, model, lesson.request_id)
            row = store(db, model, session)
            lesson.also(db)
            data, filenames = (shot.data for shot in lesson.shots), [shot.filename for shot in lesson.shots]
            classes.add_shots(db, model.id, row.id, data, lesson.scaled, filenames)
            changes = [new.row(row.id)]
            own = classes.shot_keys(db, model.id, row.id)[-len(new.held_out) :]
            measured = taught_rows(head.classifier, new, class_id, own, row.id, unknown.threshold)
            version = versions.add(
                db,
                model,
                NewVersion(
                    "provisional",
                    head.row,
                    classes=len(head.classifier) + (row.id not in head.classifier.known_ids),
                    temperature=head.row.temperature,
                    threshold=unknown.threshold,
                    details={"class": row.id, "unknown": unknown.details()},
                    prototypes=changes,
                    measurements=measured,
                ),
            )
            outliers, stored = outliers_of(new, lesson.shots), images.stored(db, model.id, [row.id])[row.id]
            answer = answer_of(row, sessions.get(db, model.id, session), version.number, outliers, stored, measured)
            outcome = Outcome(answer, session)
            remember(db, model.id, lesson.idempotency, outcome)
            return Written(outcome, head, version, changes, {**head.names, row.id: row.name})

        return Draft(on_head(head.model_id, head.number), write)

    def published(self, model: str, prepare: Callable[[], "Draft[Written]"]) -> Outcome:
        """Publish, notify, and serve it in this process."""
        written = publish(self.database, prepare, catch_up=partial(self.cache.refresh, model))
        head, version = written.head, written.version
        if version is not None:
            self._notify(model, written.outcome.session_id)  # first: to advance may have to wait, or fail
            self.cache.advance(head, head.followed_by(version, list(written.changes), written.names))
        return written.outcome

    def _earlier(self, head: LoadedVersion, class_id: int, already: int) -> Tensor | None:
        """The prototype of a class that has more images behind it than are stored: those of a base session."""
        with self.database.read() as db:
            if classes.get(db, head.model_id, class_id).shots <= already:
                return None
            known = bank_rows.prototype(db, head.model_id, head.number, class_id)
        return from_blob(known.vector) if known and known.vector else None

    def require_room(self, classes: int) -> None:
        """Raises LimitReached if a model that has this many classes cannot have another."""
        if classes >= self.settings.max_classes:
            raise LimitReached(f"the model has {classes} classes, of {self.settings.max_classes}")

    def enqueue(self, db: Session, model: Model, request_id: str) -> SessionId:
        """The session that will refine what changes; the caller holds the model's lock."""
        settings = self.settings
        return sessions.enqueue(
            db,
            model,
            delay=settings.session_delay,
            patience=settings.session_patience,
            queue=settings.session_queue,
            request_id=request_id,
            traceparent=traceparent(),
        ).id

    def _notify(self, model: str, session: SessionId | None) -> None:
        """After the commit: a process that gets the message finds it in the table."""
        self.notifier.model_changed(model)
        if session is not None:
            self.notifier.session_queued(session, self.settings.session_queue, self.settings.session_delay)
