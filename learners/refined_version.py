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
from core.held_out import held_out_distances, held_out_prototypes
from core.views import CPU, LabelledViews, features_of
from learners.blobs import to_blob
from learners.calibrated_bank import calibrated, classifier_of
from learners.loading import held_out_of, weights_blob
from learners.publishing import Draft, HeadMoved, Notifier, publish
from learners.refining import Claim, Learned, Material, SessionConfig
from learners.stored_images import Check, embed_stored
from learners.taught_class import PRIOR_SHOTS, TaughtClass, learn_class
from store import bank_rows, catalogue, classes, lineage, pruning, sessions, versions
from store.bank_rows import StatisticsRow
from store.database import Database
from store.errors import LeaseLost
from store.models import Model, Version
from store.settings import Settings
from store.versions import NewVersion

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
        measured = self._distances(classifier_of(self.state.space, bank, added))
        found = calibrated(bank, added, self._held_out(bank), measured, restarted=set(self.material.waiting))
        return NewVersion(
            "incremental",
            head,
            classes=len(found.rows),
            temperature=found.temperature,
            threshold=found.unknown.threshold,
            weights=self._changed_weights,
            details={**_measured(self.verdict), "reason": self.verdict.reason, "unknown": found.unknown.details()},
            verdict="promoted",
            session_id=self.claim.session_id,
            prototypes=found.rows,
            statistics=self._statistics(bank),
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
            sessions.enqueue(db, model, delay=0, patience=0, queue=queue, request_id=claim.request_id)
        outcome = {"verdict": new.verdict, "reason": new.details["reason"], "version": version.number}
        sessions.finish(db, claim.session_id, claim.attempt, "succeeded", **outcome)
        return version, model.name

    def _is_as_seen(self, class_id: ClassId, living: Mapping[int, int]) -> bool:
        """Whether a class still exists with the shots that the session saw."""
        return class_id in living and living[class_id] == self.material.revisions.get(class_id)

    @cached_property
    def _changed_weights(self) -> bytes | None:
        """None if the network is still the same: with too few classes to tell apart, a session trains nothing."""
        start = self.material.weights
        before = {**start.base, **start.weights}
        if all(torch.equal(weight, before[name]) for name, weight in self.state.weights.items()):
            return None
        return weights_blob(self.state, start.base)

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
        features = features_of(self.refinement.module, views, CPU)
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
    def _embeddings(self) -> Tensor:
        """Of the session's own shots, (S, V, M)."""
        return self.state.space.embed(self.refinement.shot_features)

    @cached_property
    def _held_out_before(self) -> dict[ClassId, Tensor]:
        with self.database.read() as db:
            return held_out_of(db, self.material.model.id, self.material.head.number)

    def _held_out(self, bank: PrototypeBank) -> dict[ClassId, Tensor]:
        """Distances of held-out images: of the session's own classes anew, of the others as they were."""
        shots = self.learned.shots
        distances = held_out_distances(
            self.state.space, self._embeddings, shots, self.state.bank, prior_shots=PRIOR_SHOTS
        )
        own = {class_id: distances[shots.labels == class_id] for class_id in shots.class_ids}
        return {class_id: found for class_id, found in {**self._held_out_before, **own}.items() if class_id in bank}

    def _distances(self, classifier: NearestClassMean) -> tuple[Tensor, Tensor]:
        """Of guard images, and of the new shots each without itself: (n, K), and the row of the true class (n,)."""
        space, shots, embeddings = self.state.space, self.learned.shots, self._embeddings
        prototypes = held_out_prototypes(embeddings, shots, self.state.bank, prior_shots=PRIOR_SHOTS)
        there, own = _present(classifier, shots)
        distances = space.distances(embeddings[there][:, 0], classifier.prototypes)
        apart = space.apart(embeddings[there][:, 0], prototypes[there])
        distances = distances.scatter(1, own[:, None], apart[:, None])
        guard, features = self.learned.guard, self.refinement.guard_features
        if guard is None or features is None:
            return distances, own
        there, rows = _present(classifier, guard)
        return torch.cat([classifier.distances(features[there]), distances]), torch.cat([rows, own])

    def _statistics(self, bank: PrototypeBank) -> list[StatisticsRow]:
        waited = set(self.material.waiting)  # they have one copy, which needs no statistics
        return [
            StatisticsRow(class_id, to_blob(bank.statistics.mean[place]), to_blob(bank.statistics.factor[place]))
            for place, class_id in enumerate(bank.class_ids)
            if class_id not in waited
        ]


def _present(classifier: NearestClassMean, views: LabelledViews) -> tuple[Tensor, Tensor]:
    """Which images' classes are still there, and their rows."""
    there = torch.tensor([label in classifier.known_ids for label in views.labels.tolist()])
    return there, torch.tensor(classifier.rows(views.labels[there].tolist()), dtype=torch.long)


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
    }
