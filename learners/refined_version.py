"""The version that comes of an incremental session.

What changed while the session ran is taken in when its result is published: classes taught in between are embedded by
the new network, deleted ones stay away. If another version was activated, the result is rejected.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import structlog
import torch
from sqlalchemy.orm import Session
from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, NearestClassMean
from core.errors import SessionCancelled
from core.guard import Measure, Verdict
from core.progress import Check
from core.trials import guard_distances
from core.views import CPU, features_of
from learners.blobs import to_blob
from learners.calibrated_bank import MeasuredImages, calibrated
from learners.loading import held_out_of, weights_blob
from learners.measuring import certainty_with, session_rows
from learners.publishing import Draft, HeadMoved, Notifier, publish
from learners.refining import Claim, Learned, Material, SessionConfig
from learners.stored_images import embed_stored
from learners.taught_class import TaughtClass, learn_class
from store import bank_rows, catalogue, classes, lineage, pruning, sessions, versions
from store.bank_rows import StatisticsRow
from store.database import Database
from store.errors import LeaseLost
from store.models import Model, Version
from store.settings import Settings
from store.versions import NewVersion
from tracing.spans import annotate

log = structlog.get_logger()


class RefinedVersion:
    """A session's result on its way to becoming a version."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        claim: Claim,
        material: Material,
        learned: Learned,
        config: SessionConfig,
        check: Check,
    ) -> None:
        self.database = database
        self.settings = settings
        self.claim = claim
        self.material = material
        self.learned = learned
        self.augmented = config.augmented
        self.check = check
        self.refinement = learned.refinement
        self.state = learned.refinement.state
        self.verdict = learned.refinement.verdict

    def publish(self, notifier: Notifier) -> None:
        version, model = publish(self.database, self._prepare)
        about = {"model": model, "version": version.number, "classes": version.classes}
        annotate(model=model, version=version.number, classes=version.classes, verdict=version.verdict)
        if version.verdict == "promoted":
            notifier.model_changed(model)
            log.info("version promoted", **about)
        else:
            log.info("version rejected", **about, reason=version.details["reason"])

    def _prepare(self) -> Draft[tuple[Version, str]]:
        self.check()
        with self.database.read() as db:
            model = catalogue.find_by_id(db, self.claim.model_id)
            if model is None:
                raise LeaseLost("the model was deleted")
            head = versions.servable(db, model.id, model.head)
            living = classes.living(db, model.id)
            overruled = self._overruled(db, head)
        if overruled or not self.verdict.promoted:
            new = self._rejected(head, overruled or self.verdict.reason)
        else:
            new = self._promoted(head, living)
        refined = () if overruled else [c for c in self.material.waiting if self._is_as_seen(c, living)]
        write = partial(self._write, new, refined, again=bool(overruled))
        return Draft(partial(self._lock, head.number, living), write)

    def _overruled(self, db: Session, head: Version) -> str | None:
        """Why the result cannot stand on this head, if it cannot."""
        start = self.material.head
        if not lineage.descends(db, head.model_id, head.number, start.number):
            return f"version {head.number} was activated while the session ran on version {start.number}"
        if head.weights != start.weights:
            return f"version {head.number} brought other weights while the session ran on version {start.number}"
        return None

    def _rejected(self, head: Version, reason: str) -> NewVersion:
        """Keeps the verdict; the active version stays as it is."""
        return NewVersion(
            "incremental",
            head,
            classes=head.classes,
            temperature=head.temperature,
            threshold=head.threshold,
            details={**_measured(self.verdict), "reason": reason},
            verdict="rejected",
            session_id=self.claim.session_id,
            serve=False,
        )

    def _promoted(self, head: Version, living: Mapping[int, int]) -> NewVersion:
        bank = self.state.bank.only([c for c in self.state.bank.class_ids if self._is_as_seen(c, living)])
        added = self._taught_meanwhile(head, living, bank)
        # Copies of earlier versions are in the spaces of those versions: in a new space a history begins again.
        restarted = bank.class_ids if self._moved else self.material.waiting
        held_out, measured = self._held_out(bank), self._measured_images
        found = calibrated(self.state.space, bank, added, held_out, measured, restarted=set(restarted))
        return NewVersion(
            "incremental",
            head,
            classes=len(found.rows),
            temperature=found.temperature,
            threshold=found.unknown.threshold,
            weights=self._changed_weights,
            details={
                **_measured(self.verdict),
                "reason": self.verdict.reason,
                "blend": self.refinement.blend,
                "shrink": self.refinement.shrink,
                "unknown": found.unknown.details(),
            },
            verdict="promoted",
            session_id=self.claim.session_id,
            prototypes=found.rows,
            statistics=self._statistics(bank),
            measurements=session_rows(
                self.refinement,
                [*self.material.shots, *self.material.replay],
                self.material.guard,
                lambda class_id: self._is_as_seen(class_id, living),
                certainty_with(found.temperature, found.unknown.threshold),
                held_out,
            ),
        )

    def _lock(self, head: int, living: Mapping[int, int], db: Session) -> Model:
        """Also compares the classes: shots may have been added, and the version before them activated again."""
        model = catalogue.locked(db, self.claim.model_id)
        if sessions.fenced(db, self.claim.session_id, self.claim.attempt).cancel_requested:
            raise SessionCancelled(f"session {self.claim.session_id} was cancelled")
        if model.head != head or classes.living(db, model.id) != living:
            raise HeadMoved
        return model

    def _write(
        self, new: NewVersion, refined: Sequence[ClassId], db: Session, model: Model, *, again: bool
    ) -> tuple[Version, str]:
        """The version, the classes that have had their session, and the end of the session."""
        version, claim = versions.add(db, model, new), self.claim
        classes.mark_learned(db, model.id, refined)
        if new.serve:
            pruning.prune(db, model, self.settings.keep_versions)
        if again:  # the classes still wait: nobody has judged them on the version that is active now
            queue = self.settings.session_queue
            origin = {"request_id": claim.request_id, "traceparent": claim.traceparent}
            sessions.enqueue(db, model, delay=0, patience=0, queue=queue, **origin)
        outcome = {"verdict": new.verdict, "reason": new.details["reason"], "version": version.number}
        sessions.finish(db, claim.session_id, claim.attempt, "succeeded", **outcome)
        return version, model.name

    def _is_as_seen(self, class_id: ClassId, living: Mapping[int, int]) -> bool:
        """Whether a class still exists with the shots that the session saw."""
        return class_id in living and living[class_id] == self.material.revisions.get(class_id)

    @property
    def _moved(self) -> bool:
        """Whether the session has fitted another space."""
        return self.state.space is not self.material.parent.space

    @cached_property
    def _changed_weights(self) -> bytes | None:
        """None if network and space are still the same: with too little to learn from, a session changes neither."""
        start = self.material.weights
        before = {**start.base.weights, **start.weights}
        same = all(torch.equal(weight, before[name]) for name, weight in self.state.weights.items())
        if same and not self._moved:
            return None
        return weights_blob(self.state, start.base.weights)

    def _taught_meanwhile(
        self, head: Version, living: Mapping[int, int], bank: PrototypeBank
    ) -> dict[ClassId, TaughtClass]:
        """Classes of the head that the session did not see as they are, embedded by its network."""
        with self.database.read() as db:
            present = bank_rows.class_ids(db, head.model_id, head.number)
            missed = [c for c in present if c in living and ClassId(c) not in bank]
            images = classes.shots_of(db, head.model_id, missed)
            known_by_head = bank_rows.read_bank(db, head.model_id, head.number) if missed else []
        views = embed_stored(self.learned.backbone.framing, self.learned.trunk, images, self.augmented, self.check)
        if views is None:
            return {}
        features = features_of(self.refinement.served.module, views, CPU)
        shots = {row.class_id: row.shots for row in known_by_head}
        known = NearestClassMean(self.state.space, self.state.bank, Certainty())
        return {
            class_id: self._relearned(known, class_id, features[views.labels == class_id], shots[class_id])
            for class_id in views.class_ids
        }

    def _relearned(self, known: NearestClassMean, class_id: ClassId, features: Tensor, shots: int) -> TaughtClass:
        """A class with more images behind it than are stored, those of a base session, keeps what it learned from them;
        only the shots that the session did not see are new."""
        bank = self.state.bank
        if class_id not in bank or shots <= len(features):
            return learn_class(known, features, class_id)
        (place,) = bank.rows([class_id])
        unseen = shots - int(bank.shots[place])
        return learn_class(known, features[-unseen:], class_id, earlier=bank.prototypes[place])

    @cached_property
    def _held_out_before(self) -> dict[ClassId, Tensor]:
        with self.database.read() as db:
            return held_out_of(db, self.material.model.id, self.material.head.number)

    def _held_out(self, bank: PrototypeBank) -> dict[ClassId, Tensor]:
        """Distances of held-out images: of the classes that the session saw anew, of the others as they were.

        In a new space the old distances say nothing.
        """
        before = {} if self._moved else self._held_out_before
        found = {**before, **self.refinement.distances_by_class}
        return {class_id: distances for class_id, distances in found.items() if class_id in bank}

    @property
    def _measured_images(self) -> list[MeasuredImages]:
        """Held-out shots and guard images, compared with every class that the session knew."""
        found, guard = self.refinement.held_out, self.refinement.served.guard
        known = self.state.bank.class_ids
        parts = [MeasuredImages(sorted(known), found.distances, found.own)] if len(found.own) else []
        if guard is not None:
            parts.append(MeasuredImages(known, *guard_distances(self.state, guard)))
        return parts

    def _statistics(self, bank: PrototypeBank) -> list[StatisticsRow]:
        waited = set(self.material.waiting)  # they have one copy, which needs no statistics
        return [
            StatisticsRow(class_id, to_blob(bank.statistics.mean[place]), to_blob(bank.statistics.factor[place]))
            for place, class_id in enumerate(bank.class_ids)
            if class_id not in waited
        ]


def _measured(verdict: Verdict) -> dict[str, Any]:
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
        "gain": None if verdict.gain is None else round(verdict.gain, 4),
        "gain_error": None if verdict.error is None else round(verdict.error, 4),
    }
