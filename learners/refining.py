"""Writes what a session made, on top of whatever was taught, deleted or activated while it ran.

A result is prepared for the head as it stands and written only if the head is still that one; otherwise it is prepared
again. So nothing waits for a session, and nothing taught during one is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import structlog
import torch
from sqlalchemy.orm import Session
from torch import Tensor

from core.backbones import Backbone
from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, Learned, NearestClassMean, calibrate
from core.errors import SessionCancelled
from core.guard import Measure, Verdict
from core.held_out import held_out_distances, held_out_prototypes
from core.refinement import Refinement
from core.state import LearnerState
from core.views import LabelledViews, features_of
from engine.compiled_module import CompiledModule
from learners.blobs import to_blob
from learners.loading import VersionWeights, held_out_of, weights_blob
from learners.stored_images import AUGMENTED, seen
from learners.taught_class import PRIOR_SHOTS, Taught, taught
from learners.unknown_detection import detect_unknown, nearest_other
from messaging.notifier import Notifier
from store import bank_rows, catalogue, classes, lineage, pruning, sessions, versions
from store.bank_rows import PrototypeRow, StatisticsRow
from store.classes import StoredImage
from store.database import Database
from store.errors import LeaseLost
from store.models import Model, Version
from store.settings import Settings
from workers.lease import Claim

log = structlog.get_logger()

ATTEMPTS = 20  # each costs another look at what was taught in between, so the head must move twenty times to win
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Material:
    """All that a session starts from."""

    model: Model
    head: Version
    network: VersionWeights
    parent: LearnerState  # without the classes that wait
    revisions: Mapping[int, int]  # of every living class
    waiting: Sequence[ClassId]
    shots: Sequence[StoredImage]
    guard: Sequence[StoredImage]


@dataclass(frozen=True, eq=False)
class Learnt:
    """What came of it."""

    refinement: Refinement
    backbone: Backbone  # carrying the weights that are to be served
    trunk: CompiledModule
    guard: LabelledViews | None
    shots: LabelledViews


@dataclass(frozen=True, eq=False)
class Situation:
    """The model as it is when the result is to be written."""

    head: Version
    revisions: Mapping[int, int]  # of every living class
    overruled: str | None  # why the result cannot stand on this head


class Publisher:
    def __init__(
        self,
        database: Database,
        settings: Settings,
        claim: Claim,
        material: Material,
        learnt: Learnt,
        notifier: Notifier,
    ) -> None:
        self.database = database
        self.settings = settings
        self.claim = claim
        self.material = material
        self.learnt = learnt
        self.notifier = notifier
        self.state = learnt.refinement.state
        self.verdict = learnt.refinement.verdict

    @cached_property
    def embeddings(self) -> Tensor:
        """Of the session's own shots, under the network that is to be served."""
        return self.state.space.embed(features_of(self.learnt.backbone.tail, self.learnt.shots, CPU))

    def publish(self) -> None:
        for _ in range(ATTEMPTS):
            with self.database.read() as db:
                now = self._situation(db)
            promote = self.verdict.promoted and not now.overruled
            if self._promote(now) if promote else self._set_aside(now):
                return
        raise RuntimeError("the model changed faster than a session's result could be written")

    def _situation(self, db: Session) -> Situation:
        model = catalogue.find_by_id(db, self.claim.model_id)
        if model is None:
            raise LeaseLost("the model was deleted")
        head = versions.servable(db, model.id, model.head)
        start = self.material.head
        overruled = None
        if not lineage.descends(db, model.id, head.number, start.number):
            overruled = f"version {head.number} was activated while the session ran on version {start.number}"
        elif head.weights != start.weights:
            overruled = f"version {head.number} brought other weights while the session ran on version {start.number}"
        return Situation(head, classes.living(db, model.id), overruled)

    def _set_aside(self, now: Situation) -> bool:
        """Keep the verdict; what is served stays as it is."""
        reason = now.overruled or self.verdict.reason
        with self.database.write() as db:
            model = self._held(db, now.head)
            if model is None:
                return False
            version = versions.add(
                db,
                model,
                versions.NewVersion(
                    "incremental",
                    parent=now.head,
                    classes=now.head.classes,
                    temperature=now.head.temperature,
                    threshold=now.head.threshold,
                    details={**measured(self.verdict), "reason": reason},
                    verdict="rejected",
                    session_id=self.claim.session_id,
                    serve=False,
                ),
            )
            if now.overruled:  # the classes still wait: nobody has judged them on the version that is served now
                sessions.enqueue(
                    db,
                    model,
                    delay=0,
                    patience=0,
                    queue=self.settings.session_queue,
                    request_id=self.claim.request_id,
                )
            else:
                classes.mark_learned(db, model.id, self._as_seen(self.material.waiting, now))
            self._finish(db, "rejected", reason, version)
        log.info("version rejected", model=model.name, version=version.number, reason=reason)
        return True

    def _promote(self, now: Situation) -> bool:
        bank = self.state.bank.only(self._as_seen(self.state.bank.class_ids, now))
        late = self._taught_meanwhile(now, bank)
        held_out = self._held_out(bank)
        classifier = NearestClassMean(self.state.space, bank, Certainty())
        added = {class_id: Learned(new.prototype, new.shots) for class_id, new in late.items()}
        distances, own = self._distances(classifier.changed(added, Certainty()))
        pooled = {**held_out, **{class_id: new.held_out for class_id, new in late.items()}}
        open_world = detect_unknown(pooled, nearest_other(distances, own))
        details = {**measured(self.verdict), "reason": self.verdict.reason, "unknown": open_world.details()}
        blob = weights_blob(self.state, self.material.network.base) if self._moved() else None
        rows = [*self._rows(bank, held_out), *(new.row(class_id) for class_id, new in late.items())]
        with self.database.write() as db:
            model = self._held(db, now.head)
            if model is None:
                return False
            version = versions.add(
                db,
                model,
                versions.NewVersion(
                    "incremental",
                    parent=now.head,
                    classes=len(rows),
                    temperature=calibrate(distances, own).temperature,
                    threshold=open_world.threshold,
                    weights=blob,
                    details=details,
                    verdict="promoted",
                    session_id=self.claim.session_id,
                    prototypes=rows,
                    statistics=self._statistics(bank),
                ),
            )
            classes.mark_learned(db, model.id, self._as_seen(self.material.waiting, now))
            pruning.prune(db, model, self.settings.keep_versions)
            self._finish(db, "promoted", self.verdict.reason, version)
        self.notifier.model_changed(model.name)
        log.info("version promoted", model=model.name, version=version.number, classes=len(rows))
        return True

    def _moved(self) -> bool:
        """Whether the network is another one; with too few classes to tell apart a session trains nothing."""
        before = {**self.material.network.base, **self.material.network.weights}
        return any(not torch.equal(weight, before[name]) for name, weight in self.state.weights.items())

    def _held(self, db: Session, head: Version) -> Model | None:
        """The model's row, locked, if the session is still ours and the head still what was prepared for."""
        model = catalogue.locked(db, self.claim.model_id)
        if sessions.fenced(db, self.claim.session_id, self.claim.attempt).cancel_requested:
            raise SessionCancelled(f"session {self.claim.session_id} was cancelled")
        return model if model.head == head.number else None

    def _finish(self, db: Session, verdict: str, reason: str, version: Version) -> None:
        claim = self.claim
        sessions.finish(
            db,
            claim.session_id,
            claim.attempt,
            "succeeded",
            verdict=verdict,
            reason=reason,
            version=version.number,
        )

    def _as_seen(self, class_ids: Sequence[ClassId], now: Situation) -> list[ClassId]:
        """Those that live and have the shots that the session saw."""
        seen_then = self.material.revisions
        return [c for c in class_ids if c in now.revisions and now.revisions[c] == seen_then.get(c)]

    def _taught_meanwhile(self, now: Situation, bank: PrototypeBank) -> dict[ClassId, Taught]:
        """Classes of the head that the session did not see as they are, now seen by its network."""
        with self.database.read() as db:
            present = bank_rows.class_ids(db, now.head.model_id, now.head.number)
            missed = [c for c in present if c in now.revisions and ClassId(c) not in bank]
            pictures = classes.shots_of(db, now.head.model_id, missed)
            known_by_head = bank_rows.read_bank(db, now.head.model_id, now.head.number) if missed else []
        shots = {row.class_id: row.shots for row in known_by_head}
        backbone = self.learnt.backbone
        views = seen(backbone.framing, self.learnt.trunk, pictures, AUGMENTED)
        if views is None:
            return {}
        features = features_of(backbone.tail, views, CPU)
        known = NearestClassMean(self.state.space, self.state.bank, Certainty())
        return {
            class_id: self._seen_again(known, class_id, features[views.labels == class_id], shots[class_id])
            for class_id in views.class_ids
        }

    def _seen_again(self, known: NearestClassMean, class_id: ClassId, features: Tensor, shots: int) -> Taught:
        """A class behind which stand more pictures than are stored, those of a base session, keeps what they taught;
        only the shots that the session did not see are new."""
        bank = self.state.bank
        if class_id not in bank or shots <= len(features):
            return taught(known, class_id, features)
        (place,) = bank.rows([class_id])
        unseen = shots - int(bank.shots[place])
        return taught(known, class_id, features[-unseen:], earlier=bank.prototypes[place])

    def _held_out(self, bank: PrototypeBank) -> dict[ClassId, Tensor]:
        """Distances of held-out pictures: of the session's own classes anew, of the others as they were."""
        with self.database.read() as db:
            before = held_out_of(db, self.material.model.id, self.material.head.number)
        shots = self.learnt.shots
        distances = held_out_distances(
            self.state.space, self.embeddings, shots, self.state.bank, prior_shots=PRIOR_SHOTS
        )
        own = {class_id: distances[shots.labels == class_id] for class_id in shots.class_ids}
        return {class_id: found for class_id, found in {**before, **own}.items() if class_id in bank}

    def _distances(self, classifier: NearestClassMean) -> tuple[Tensor, Tensor]:
        """Of guard pictures, and of the new shots each without itself: (n, K), and the row of the true class (n,)."""
        tail, space = self.learnt.backbone.tail, self.state.space
        shots, embeddings = self.learnt.shots, self.embeddings
        prototypes = held_out_prototypes(embeddings, shots, self.state.bank, prior_shots=PRIOR_SHOTS)
        there, own = _present(classifier, shots)
        distances = space.distances(embeddings[there][:, 0], classifier.prototypes)
        apart = space.apart(embeddings[there][:, 0], prototypes[there])
        distances = distances.scatter(1, own[:, None], apart[:, None])
        guard = self.learnt.guard
        if guard is None:
            return distances, own
        there, rows = _present(classifier, guard)
        watched = classifier.distances(features_of(tail, guard, CPU)[there][:, 0])
        return torch.cat([watched, distances]), torch.cat([rows, own])

    def _rows(self, bank: PrototypeBank, held_out: Mapping[ClassId, Tensor]) -> list[PrototypeRow]:
        waited = set(self.material.waiting)
        return [
            PrototypeRow(
                class_id,
                to_blob(prototype),
                shots,
                restart=class_id in waited,
                held_out=to_blob(held_out[class_id]) if class_id in held_out else None,
            )
            for class_id, prototype, shots in zip(bank.class_ids, bank.prototypes, bank.shots.tolist(), strict=True)
        ]

    def _statistics(self, bank: PrototypeBank) -> list[StatisticsRow]:
        waited = set(self.material.waiting)  # of a single copy the prototype says it all
        return [
            StatisticsRow(class_id, to_blob(bank.statistics.mean[place]), to_blob(bank.statistics.factor[place]))
            for place, class_id in enumerate(bank.class_ids)
            if class_id not in waited
        ]


def _present(classifier: NearestClassMean, views: LabelledViews) -> tuple[Tensor, Tensor]:
    """Which pictures' classes are still there, and their rows."""
    present = set(classifier.class_ids)
    there = torch.tensor([label in present for label in views.labels.tolist()])
    return there, torch.tensor(classifier.rows(views.labels[there].tolist()), dtype=torch.long)


def measured(verdict: Verdict) -> dict[str, Any]:
    """A verdict as a version's details show it, in percent and points."""

    def rounded(measure: Measure) -> dict[str, float | None]:
        return {
            name: None if value is None else round(value, 2)
            for name, value in (("old", measure.old), ("new", measure.new))
        }

    lost = verdict.forgetting
    return {
        "accuracy": rounded(verdict.after),
        "accuracy_before": rounded(verdict.before),
        "forgetting": None if lost is None else round(lost, 2),
    }
