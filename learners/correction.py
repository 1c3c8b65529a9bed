"""Corrections of what was taught: a shot is deleted or becomes another class's, a class is merged into another.

As with every teaching: one transaction, one provisional version, and the classes wait for a session again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from sqlalchemy.orm import Session
from torch import Tensor

from core.bank import ClassId
from core.classifier import NearestClassMean
from engine.network import Network
from learners.blobs import from_blob
from learners.measuring import taught_rows
from learners.publishing import Draft, on_head
from learners.taught_answer import Outcome, answer_of
from learners.taught_class import UNNUMBERED, TaughtClass, detect_unknown_with, learn_class
from learners.teaching import Teaching, Written
from learners.version_loader import LoadedVersion
from store import bank_rows, classes, images, sessions, versions
from store.bank_rows import PrototypeRow
from store.errors import Conflict, LimitReached
from store.measurements import Measured
from store.models import ClassRow, Model, ModelId, SessionId, VersionNumber
from store.versions import NewVersion

Features = Callable[[Network], Tensor]  # (n, V, M) of the shots of a plan, in its order, under a network


@dataclass(frozen=True)
class Correction:
    """A shot of a class, or without one all of them, goes to another class; without another class it is deleted."""

    source: int
    shot: int | None = None
    into: int | str | None = None  # a class, or the name of a new one

    @property
    def merges(self) -> bool:
        return self.shot is None


@dataclass(frozen=True)
class Plan:
    """A correction of the classes as they were when it was planned."""

    correction: Correction
    revisions: Mapping[int, int]  # of the classes that take part
    before: Mapping[int, tuple[int, ...]]  # their stored shots
    after: Mapping[int, tuple[int, ...]]  # the shots that each class keeps or gets; UNNUMBERED: of a new class
    receiver: int  # the class that the answer is about

    @property
    def shots(self) -> list[int]:
        """All that take part, in the order of their ids."""
        return sorted(shot for shots in self.before.values() for shot in shots)

    @property
    def fewest(self) -> int:
        return min(len(shots) for shots in self.after.values())


class Correcting:
    """All methods wait for the database: call them in a thread."""

    def __init__(self, teaching: Teaching) -> None:
        self.teaching = teaching

    def plan(self, model_id: ModelId, correction: Correction) -> Plan:
        """Raises NotThere, Conflict or LimitReached, before any image is embedded."""
        source, into = correction.source, correction.into
        with self.teaching.database.read() as db:
            taking_part = [source, into] if isinstance(into, int) else [source]
            rows = {class_id: classes.get(db, model_id, class_id) for class_id in taking_part}
            before = {class_id: tuple(classes.shot_keys(db, model_id, class_id)) for class_id in rows}
            if correction.shot is not None:
                _require_shot(db, model_id, correction, before[source])
            if isinstance(into, str):
                classes.require_free(db, model_id, into)
        if into == source:
            raise Conflict(f"class {source} is that class already; name another one")
        moved = set(before[source] if correction.shot is None else [correction.shot])
        left = tuple(shot for shot in before[source] if shot not in moved)
        if not correction.merges and not left and rows[source].shots <= len(before[source]):
            raise _last_shot(correction)
        after = {} if correction.merges else {source: left}
        receiver = source if into is None else into if isinstance(into, int) else UNNUMBERED
        if into is not None:
            after[receiver] = tuple(sorted({*before.get(receiver, ()), *moved}))
        self._require_within_limit(after, receiver)
        revisions = {class_id: row.revision for class_id, row in rows.items()}
        return Plan(correction, revisions, before, after, receiver)

    def _require_within_limit(self, after: Mapping[int, Sequence[int]], receiver: int) -> None:
        most = self.teaching.settings.max_shots
        if len(after[receiver]) > most:
            raise LimitReached(f"class {receiver} would have {len(after[receiver])} shots, of {most} at most")

    def correct(self, model: str, plan: Plan, features: Features, request_id: str) -> Outcome:
        """Publish a version in which the classes are as their shots after the correction say."""

        def prepare() -> Draft[Written]:
            head = self.teaching.cache.active(model)
            return self._draft(head, plan, _Relearning(self.teaching, head, plan, features(head.network)), request_id)

        return self.teaching.published(model, prepare)

    def _draft(self, head: LoadedVersion, plan: Plan, relearning: "_Relearning", request_id: str) -> Draft[Written]:
        known, new = relearning.known, relearning.learned()
        gone = {plan.correction.source} if plan.correction.merges else set()
        replaced = {ClassId(c): one.held_out for c, one in new.items() if c != plan.receiver}
        held_out = {c: found for c, found in head.held_out.items() if c not in gone} | replaced
        unknown = detect_unknown_with(known, held_out, new[plan.receiver], ClassId(plan.receiver))

        def write(db: Session, model: Model) -> Written:
            _require_as_planned(db, model.id, plan)
            session = self.teaching.enqueue(db, model, request_id)
            receiver = self._receiver(db, model, plan, head, session, new)
            _store_shots(db, model, plan, receiver.id)
            changes = [PrototypeRow(c, None, 0, restart=True) for c in gone if c in head.classifier.known_ids]
            measured: list[Measured] = []
            for class_id, one in new.items():
                row = receiver if class_id == plan.receiver else classes.get(db, model.id, class_id)
                _mark_changed(row, one, session, waits=not relearning.unstored(class_id))
                changes.append(one.row(row.id))
                shots = plan.after[class_id][-len(one.held_out) :]
                measured += taught_rows(known, one, ClassId(class_id), shots, row.id, unknown.threshold)
            present = {*head.classifier.known_ids} - gone | {change.class_id for change in changes if change.vector}
            version = versions.add(
                db,
                model,
                NewVersion(
                    "provisional",
                    head.row,
                    classes=len(present),
                    temperature=head.row.temperature,
                    threshold=unknown.threshold,
                    details={"class": receiver.id, "unknown": unknown.details(), **_details(plan)},
                    prototypes=changes,
                    measurements=measured,
                ),
            )
            stored = images.stored(db, model.id, [receiver.id]).get(receiver.id, images.Stored())
            queued = sessions.get(db, model.id, session)
            outcome = Outcome(answer_of(receiver, queued, version.number, [], stored, measured), session)
            return Written(outcome, head, version, changes, {**head.names, receiver.id: receiver.name})

        return Draft(on_head(head.model_id, head.number), write)

    def _receiver(
        self,
        db: Session,
        model: Model,
        plan: Plan,
        head: LoadedVersion,
        session: SessionId,
        new: Mapping[int, TaughtClass],
    ) -> ClassRow:
        if not isinstance(plan.correction.into, str):
            return classes.get(db, model.id, plan.receiver)
        self.teaching.require_room(len(head.classifier))
        since, shots = VersionNumber(model.last_version + 1), new[plan.receiver].shots
        return classes.add(db, model, plan.correction.into, shots=shots, since=since, session_id=session)


class _Relearning:
    """The classes of a plan, learned from their shots after the correction, under the weights of a head."""

    def __init__(self, teaching: Teaching, head: LoadedVersion, plan: Plan, features: Tensor) -> None:
        self.plan = plan
        gone: dict[ClassId, None] = {ClassId(plan.correction.source): None} if plan.correction.merges else {}
        self.known: NearestClassMean = head.classifier.changed(gone, head.classifier.certainty)
        self._places = {shot: place for place, shot in enumerate(plan.shots)}
        self._features = features  # (n, V, M)
        self._embeddings = self.known.space.embed(features).mean(1)  # (n, M)
        self._unstored = {class_id: self._part(teaching, head, class_id) for class_id in plan.before}

    def learned(self) -> dict[int, TaughtClass]:
        """Classes that the head knows, and the one that the correction is about."""
        about = dict(self.plan.after)
        source = self.plan.correction.source
        if source in about and source != self.plan.receiver and source not in self.known.known_ids:
            del about[source]  # not served: only its rows change
        return {class_id: self._learn(class_id, shots) for class_id, shots in about.items()}

    def unstored(self, class_id: int) -> int:
        """How many images are behind the class after the correction that are not stored: those of a base session."""
        return sum(count for _, count in self._parts(class_id))

    def _learn(self, class_id: int, shots: Sequence[int]) -> TaughtClass:
        features = self._features[[self._places[shot] for shot in shots]]
        behind = self.unstored(class_id)
        if not behind:
            return learn_class(self.known, features, ClassId(class_id))
        earlier = torch.stack([total for total, _ in self._parts(class_id)]).sum(0) / behind
        if not len(features):
            return TaughtClass(earlier, behind, torch.zeros(0), torch.zeros(0, len(earlier)))
        return learn_class(self.known, features, ClassId(class_id), earlier=earlier, behind=behind)

    def _parts(self, class_id: int) -> list[tuple[Tensor, int]]:
        merged = [self.plan.correction.source] if self.plan.correction.merges else []
        found = [self._unstored.get(one) for one in {class_id, *merged}]
        return [part for part in found if part is not None]

    def _part(self, teaching: Teaching, head: LoadedVersion, class_id: int) -> tuple[Tensor, int] | None:
        """What the images that are not stored have added to the prototype of a class: their sum, and their number."""
        stored = self.plan.before[class_id]
        with teaching.database.read() as db:
            if classes.get(db, head.model_id, class_id).shots <= len(stored):
                return None
            row = bank_rows.prototype(db, head.model_id, head.number, class_id)
        if row is None or row.vector is None:
            raise Conflict(f"the active version does not know class {class_id}, of which only a part is stored")
        own = self._embeddings[[self._places[shot] for shot in stored]].sum(0)
        return row.shots * from_blob(row.vector) - own, row.shots - len(stored)


def _require_shot(db: Session, model_id: ModelId, correction: Correction, stored: Sequence[int]) -> None:
    if correction.shot is not None and correction.shot < 0:
        images.get(db, model_id, correction.source, correction.shot)
        raise Conflict(
            f"image {correction.shot} is a guard image: versions are measured on it, and it stays where it is; "
            f"delete class {correction.source}, or merge it into another"
        )
    if correction.shot not in stored:
        images.get(db, model_id, correction.source, correction.shot or 0)


def _last_shot(correction: Correction) -> Conflict:
    instead = "merge the class into the other" if correction.into is not None else "delete the class"
    return Conflict(f"shot {correction.shot} is the last one of class {correction.source}; {instead} instead")


def _require_as_planned(db: Session, model_id: ModelId, plan: Plan) -> None:
    for class_id, revision in plan.revisions.items():
        if classes.get(db, model_id, class_id).revision != revision:
            raise Conflict(f"class {class_id} was given other shots at the same time; try again")


def _store_shots(db: Session, model: Model, plan: Plan, receiver: int) -> None:
    correction = plan.correction
    if correction.merges:
        classes.move_images(db, model.id, correction.source, receiver)
        classes.erase(db, model.id, correction.source)
    elif correction.into is None:
        classes.delete_shot(db, model.id, correction.shot or 0)
    else:
        classes.move_shot(db, model.id, correction.shot or 0, receiver)
    source = plan.correction.source
    if not correction.merges and source != receiver:  # also if the head does not know it
        row = classes.get(db, model.id, source)
        row.shots, row.revision = row.shots - 1, row.revision + 1


def _mark_changed(row: ClassRow, new: TaughtClass, session: SessionId, *, waits: bool) -> None:
    row.shots, row.revision = new.shots, row.revision + 1
    if waits:
        row.status, row.session_id = "provisional", session


def _details(plan: Plan) -> dict[str, int]:
    correction = plan.correction
    if correction.merges:
        return {"merged": correction.source}
    if correction.into is None:
        return {"deleted_shot": correction.shot or 0}
    return {"moved_shot": correction.shot or 0, "from": correction.source}
