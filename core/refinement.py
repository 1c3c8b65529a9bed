"""A session, from shots to a state that may be served: train, blend, fit the space, measure, judge.

Whatever the verdict, the new classes are in the state to serve: refined when promoted, as plain class means when
rejected. Nothing that is given changes.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from core.backbones import Backbone
from core.bank import ClassId
from core.classifier import log_probability
from core.drift import drift
from core.errors import Diverged
from core.fitting import FitConfig, can_fit, in_fitted_space, in_space, with_classes
from core.folds import HeldOut, folds_of
from core.guard import Judge, Measure, Measured, Verdict, judge
from core.incremental_session import IncrementalConfig, TailTraining, is_well_determined, training_space
from core.known_distances import KnownDistances, after_training, distances_by_class
from core.progress import Report, silent
from core.prototypes import WELL_KNOWN
from core.space import SpaceChange
from core.state import LearnerState
from core.trials import SessionImages, Trial, blended, guard_distances, light
from core.views import CPU, LabelledViews, features_of, prefix_of, trainable_part

BLENDS = (0.25, 0.5, 0.75, 1.0)  # how far to go to the trained weights; 0, not at all, is tried in any case
USUAL_BLENDS = (0.5, 0.25)  # in this order, without a base session
BASE_SHRINK = 1.0  # where a base session has determined the space
SHRINKS = (10.0, 3.0, 1.0, 0.3)
BEYOND_CHANCE = 1.2816  # standard errors that a further blend must gain: one in ten does so by chance
FEWEST_TO_TRAIN = 10  # held-out images: with fewer, a gain from training cannot be told from chance


@dataclass(frozen=True, eq=False)
class Refinement:
    """The outcome of a gated session, with the network and the features of the state to serve."""

    parent: LearnerState
    new: LabelledViews  # features of the new classes' shots under the parent's weights
    plain: FitConfig  # how a class is made of them without training
    candidate: LearnerState | None  # the refined state; None where training diverged
    verdict: Verdict
    served: Trial
    held_out: HeldOut  # shots measured by the state to serve; those that it was trained on, without the training
    known_distances: KnownDistances  # of these shots
    blend: float
    shrink: float | None

    @cached_property
    def provisional(self) -> LearnerState:
        """The parent and the new classes, untrained."""
        return with_classes(self.parent, self.new, self.plain)

    @property
    def state(self) -> LearnerState:
        """The state to serve."""
        return self.candidate if self.candidate and self.verdict.promoted else self.provisional

    @cached_property
    def distances_by_class(self) -> dict[ClassId, Tensor]:
        """How far held-out images of each class are from the class nearest to them."""
        seen, guard = self.served.seen, self.served.guard
        return distances_by_class(self.known_distances, self.state, seen, guard, self.plain.prior_shots)


def teach(backbone: Backbone, parent: LearnerState, shots: LabelledViews, config: IncrementalConfig) -> LearnerState:
    """Add classes without training: prototypes under the parent's weights. This is the provisional version."""
    shots.require_images()
    features = features_of(trainable_part(backbone, config.scope), shots, CPU)
    return with_classes(parent, LabelledViews(features, shots.labels), config.fit)


def refine(
    backbone: Backbone,
    parent: LearnerState,
    images: SessionImages,
    config: IncrementalConfig,
    *,
    start: Backbone | None = None,
    judge: Judge | None = judge,
    device: torch.device | str = "cpu",
    report: Report = silent,
) -> Refinement:
    """Run one session on `parent`, whose weights `backbone` carries, and judge it; without a judge it is promoted.

    `parent.scatter` is that of the classes which have no image among the session's. `start`: the network to train from,
    where old shots are replayed: a stream of sessions then ends where one session of all classes would.
    """
    images.shots.require_images()
    session = _Session(backbone, parent, images, config, start or backbone, torch.device(device))
    try:
        return session.outcome(session.train(report), judge)
    except Diverged as error:
        return session.diverged(error)


class _Session:
    def __init__(
        self,
        backbone: Backbone,
        parent: LearnerState,
        images: SessionImages,
        config: IncrementalConfig,
        start: Backbone,
        device: torch.device,
    ) -> None:
        self.images = images
        self.config = config
        self.device = device
        self.parent = parent
        replayed = () if images.replay is None else images.replay.class_ids
        self.remembered = replace(parent, bank=parent.bank.without(replayed))
        self.light = light(self.remembered)  # all that is needed to compare with
        self.turns = folds_of(images.seen.labels)
        self.start = trainable_part(start, config.scope)
        self.budget = round(config.fraction * backbone.parameter_count)
        self.before = Trial.of(0.0, trainable_part(backbone, config.scope), images, self.light)
        self.first = self.before if self.start is self.before.module else self._from_start()
        self.fitted: LearnerState | None = None  # the remembered classes in a space that all trials share
        self.new = self.before.seen.select(torch.arange(len(images.shots)))

    def _from_start(self) -> Trial:
        """Another network than the parent's sees the remembered classes elsewhere: they follow to where it does."""
        first = Trial.of(0.0, self.start, self.images, self.light)
        bank, space = self.remembered.bank, self.remembered.space
        if self.config.drift and len(bank):
            before, after = (space.embed(trial.seen.inputs) for trial in (self.before, first))
            shift = drift(bank.prototypes, before, after, space, self.config.drift_bandwidth)
            self.remembered = replace(self.remembered, bank=bank.with_copies(bank.prototypes + shift))
            self.light = light(self.remembered)
        return replace(first, remembered=self.light)

    def train(self, report: Report) -> "TailTraining | None":
        """Where blends are searched, the shots of the first turn are kept out of the training."""
        rows = torch.arange(len(self.turns))
        if self.config.search:
            guarded = 0 if self.images.guard is None else len(self.images.guard)
            if int((self.turns == 0).sum()) + guarded < FEWEST_TO_TRAIN:
                return None
            rows = (self.turns != 0).nonzero()[:, 0]
        training = TailTraining(
            self.start,
            self.budget,
            self.remembered,
            self.images.seen.select(rows),
            self.first.seen.inputs[rows],
            self.config,
            self.device,
        )
        if not training.possible:
            return None
        training.train(report)
        return training

    def outcome(self, training: "TailTraining | None", judge: Judge | None) -> Refinement:
        shrink = self._shrink()
        fitting = self._fitting(shrink)
        trial = self._blended(training, fitting)
        turns, learned_from = self._unseen_by(trial), self._learned_from(trial)
        candidate = self._state(training, trial, fitting)
        shots = [self.before.held_out(some, self._unfitted) for some in (turns, learned_from)]
        before = self._measured(self.before, shots, self._plain)
        found, stand_ins = trial.held_out(turns, fitting), self.first.held_out(learned_from, fitting)
        after = self._measured(trial, [found, stand_ins], candidate)
        if judge is None:
            verdict = Verdict(True, "not judged", before.accuracy, after.accuracy)
        else:
            verdict = judge(before, after)
        if verdict.promoted:
            served = trial
            if len(stand_ins.rows):
                found = after_training(found, self.first.held_out(self.turns, fitting))
            known = KnownDistances.of(found)
        else:
            served, found = self.before, self.before.held_out(self.turns, self._unfitted)
            known = KnownDistances(found.labels, found.to_own)  # the version keeps the threshold of its teaching
        return self._refinement(candidate, verdict, served, found, known, trial.blend, shrink)

    def diverged(self, error: Diverged) -> Refinement:
        measured = self._measured(self.before, [self.before.held_out(self.turns, self._unfitted)], self._plain)
        verdict = Verdict(False, str(error), measured.accuracy, Measure(None, None))
        nothing = self.before.held_out(torch.full_like(self.turns, -1), self.config.fit)
        return self._refinement(None, verdict, self.before, nothing, KnownDistances.of(nothing), 0.0, None)

    def _refinement(self, candidate: LearnerState | None, *outcome: Any) -> Refinement:
        return Refinement(self.parent, self.new, self.config.fit, candidate, *outcome)

    @property
    def _plain(self) -> LearnerState:
        """The provisional state, with the newest copies only."""
        return with_classes(light(self.parent), self.new, self.config.fit)

    @property
    def _unfitted(self) -> FitConfig:
        return replace(self.config.fit, shrink=None, allowance=None)

    def _fitting(self, shrink: float | None) -> FitConfig:
        """How the space is fitted to the shots. A few hardly change one that thousands of images have determined: all
        trials may share it."""
        if shrink is None:
            return self._unfitted
        fitting = replace(self.config.fit, shrink=shrink, allowance=self._allowance)
        if is_well_determined(self.remembered.scatter):
            self.fitted = in_fitted_space(self.light, self.first.seen, fitting)
            self.first = replace(self.first, remembered=self.fitted)
            fitting = replace(fitting, shrink=None)
        return fitting

    @property
    def _allowance(self) -> float:
        """None needed without well-known classes; with few others among them, it would cost more than it gains."""
        counts = torch.cat([self.remembered.bank.shots, self.images.seen.counts])
        few = float((counts < WELL_KNOWN).float().mean())
        return self.config.allowance * few if few < 1 else 0.0

    def _blended(self, training: "TailTraining | None", fitting: FitConfig) -> Trial:
        """How far to go from the first weights to the trained ones, told by held-out images.

        Where a base session has fitted the network, as far as they gain beyond chance. Without one, half of the way has
        helped on all data that was tried: it is gone unless they lose beyond chance, for they are few.
        """
        if training is None:
            return self.first
        if not self.config.search:
            return self._trial(training, self.config.blend)
        turns = torch.where(self.turns == 0, 0, -1)
        most = self._evidence(self.first, turns, fitting)
        if is_well_determined(self.remembered.scatter):
            return self._as_far_as_it_gains(training, turns, fitting, most)
        for blend in USUAL_BLENDS:
            trial = self._trial(training, blend)
            gain, chance = _gain(self._evidence(trial, turns, fitting), most)
            if gain > -BEYOND_CHANCE * chance:
                return trial
        return self.first

    def _as_far_as_it_gains(self, training: "TailTraining", turns: Tensor, fitting: FitConfig, most: Tensor) -> Trial:
        best = self.first
        for blend in BLENDS:
            trial = self._trial(training, blend)
            evidence = self._evidence(trial, turns, fitting)
            gain, chance = _gain(evidence, most)
            if not gain > BEYOND_CHANCE * chance:
                break
            best, most = trial, evidence
        return best

    def _unseen_by(self, trial: Trial) -> Tensor:
        """The turns whose shots the network has not learned from: a trained one has seen all but the first, or all."""
        if trial.blend == 0:
            return self.turns
        return torch.where(self.turns == 0, 0 if self.config.search else -1, -1)

    def _learned_from(self, trial: Trial) -> Tensor:
        """The other turns. For their shots the untrained network in the new space stands in, when the result is judged:
        the few that training left out would tell little of what the space has gained.
        """
        if trial.blend == 0 or not self.config.search:
            return torch.full_like(self.turns, -1)
        return torch.where(self.turns == 0, -1, self.turns)

    def _trial(self, training: TailTraining, blend: float) -> Trial:
        module = blended(self.start, training.module, blend)
        trial = Trial.of(blend, module, self.images, self.remembered)
        if not torch.isfinite(trial.seen.inputs).all():
            raise Diverged("the trained network gives features that are not finite; its learning rate is too high")
        return replace(trial, remembered=self._remembered_by(trial, training, self.light))

    def _remembered_by(self, trial: Trial, training: "TailTraining | None", before: LearnerState) -> LearnerState:
        """What was remembered before training, as the network of a trial would see it."""
        if training is not None and trial is not self.first:
            before = training.remembered_after(before, self._drift(trial))
        if self.fitted is not None:
            return replace(in_space(before, self.fitted.space), scatter=self.fitted.scatter)
        return before

    def _drift(self, trial: Trial) -> Tensor | None:
        if not self.config.drift or not len(self.light.bank):
            return None
        space = training_space(self.light)
        prototypes = SpaceChange(self.light.space, space).points(self.light.bank.prototypes)
        before, after = (space.embed(features.inputs) for features in (self.first.seen, trial.seen))
        return drift(prototypes, before, after, space, self.config.drift_bandwidth)

    @property
    def _can_fit(self) -> bool:
        return self.config.refit and can_fit(self.remembered, self.images.seen)

    def _shrink(self) -> float | None:
        """The shrinkage under which held-out shots are most probable; None where there is no space to fit.

        Taken before training: every shot can be held out then.
        """
        if not self._can_fit:
            return None
        if is_well_determined(self.remembered.scatter):
            return BASE_SHRINK
        if not self.config.search or not (self.turns >= 0).any():
            return self.config.shrink
        scores = {
            shrink: float(self._evidence(self.first, self.turns, replace(self.config.fit, shrink=shrink)).mean())
            for shrink in SHRINKS
        }
        return max(scores, key=scores.__getitem__)

    def _evidence(self, trial: Trial, turns: Tensor, fitting: FitConfig) -> Tensor:
        """Log-probability of the truth for held-out shots, and for guard images."""
        shots = trial.held_out(turns, fitting).log_probability
        if trial.guard is None:
            return shots
        guard = log_probability(*guard_distances(trial.fitted(fitting), trial.guard))
        return torch.cat([shots, guard])

    def _measured(self, trial: Trial, parts: list[HeldOut], state: LearnerState) -> Measured:
        labels, right = (torch.cat([getattr(part, name) for part in parts]) for name in ("labels", "right"))
        new = torch.isin(labels, self.images.shots.labels)
        old, evidence = right[~new], [torch.cat([part.log_probability for part in parts])[new]]
        if trial.guard is not None:
            distances, own = guard_distances(state, trial.guard)
            old = torch.cat([old, distances.argmin(1) == own])
            evidence.append(log_probability(distances, own))
        return Measured(old, right[new], torch.cat(evidence))

    def _state(self, training: "TailTraining | None", trial: Trial, fitting: FitConfig) -> LearnerState:
        state = trial.fitted(fitting, remembered=self._remembered_by(trial, training, self.remembered))
        weights = dict(self.parent.weights)
        if training is not None or trial.module is not self.before.module:
            own, prefix = trial.module.state_dict(), prefix_of(self.config.scope)
            names = training.masks if training is not None else own
            weights |= {prefix + name: own[name].clone() for name in names}
        return replace(state, weights=weights)


def _gain(after: Tensor, before: Tensor) -> tuple[float, float]:
    """Of images compared one by one: the mean, and its standard error."""
    gains = after - before
    return float(gains.mean()), float(gains.std()) / len(gains) ** 0.5
