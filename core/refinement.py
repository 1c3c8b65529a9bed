"""A session, from shots to a state that may be served: train, blend, fit the space, measure, judge.

Whatever the verdict, the new classes are in the state to serve: refined when promoted, as plain class means when
rejected. Nothing that is given changes.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from core.backbones import Backbone
from core.classifier import log_probability
from core.drift import drift
from core.errors import Diverged
from core.fitting import FitConfig, can_fit, fit, in_fitted_space, in_space, with_classes
from core.folds import HeldOut, folds_of, held_out
from core.guard import Judge, Measure, Measured, Verdict, judge
from core.incremental_session import IncrementalConfig, TailTraining, is_well_determined, training_space
from core.progress import Report, silent
from core.prototypes import WELL_KNOWN
from core.state import LearnerState
from core.views import CPU, LabelledViews, features_of, prefix_of, trainable_part

BLENDS = (0.25, 0.5, 0.75, 1.0)  # how far to go to the trained weights; 0, not at all, is tried in any case
BASE_SHRINK = 1.0  # where a base session has determined the space
SHRINKS = (10.0, 3.0, 1.0, 0.3)
BEYOND_CHANCE = 1.2816  # standard errors that a further blend must gain: one in ten does so by chance
FEWEST_TO_TRAIN = 20  # held-out images: with fewer, a gain from training cannot be told from chance


@dataclass(frozen=True, eq=False)
class SessionImages:
    """The images of a session, as inputs of the part of the network that it trains."""

    shots: LabelledViews  # of the new classes
    replay: LabelledViews | None = None  # stored shots of old classes, in as many views; None: nothing is replayed
    guard: LabelledViews | None = None  # of old classes, never learned from

    @property
    def seen(self) -> LabelledViews:
        """What the session learns from."""
        return self.shots if self.replay is None else self.shots.joined(self.replay)


@dataclass(frozen=True, eq=False)
class Trial:
    """A network that might be served, with what it makes of the session's images."""

    blend: float
    module: nn.Module  # the part of the backbone that the session trains, in evaluation mode on the CPU
    seen: LabelledViews  # features (S, V, M) of the shots, and of those that are replayed
    guard: LabelledViews | None  # features (G, 1, M)
    remembered: LearnerState  # the classes without images, as this network would see them

    @classmethod
    def of(cls, blend: float, module: nn.Module, images: SessionImages, remembered: LearnerState) -> "Trial":
        seen = LabelledViews(features_of(module, images.seen, CPU), images.seen.labels)
        guard = None
        if images.guard is not None and len(images.guard):
            guard = LabelledViews(features_of(module, images.guard.centre(), CPU), images.guard.labels)
        return cls(blend, module, seen, guard, remembered)

    def held_out(self, turns: Tensor, config: FitConfig) -> HeldOut:
        """The shots of these turns, each measured by a state that was fitted without it."""
        light = replace(self.remembered, bank=self.remembered.bank.newest())
        return held_out(self.seen, turns, lambda features: fit(light, features, config))


@dataclass(frozen=True, eq=False)
class Refinement:
    """The outcome of a gated session, with the network and the features of the state to serve."""

    provisional: LearnerState  # the parent and the new classes, untrained
    candidate: LearnerState | None  # the refined state; None where training diverged
    verdict: Verdict
    served: Trial
    held_out: HeldOut  # shots measured by the state to serve
    blend: float
    shrink: float | None

    @property
    def state(self) -> LearnerState:
        """The state to serve."""
        return self.candidate if self.candidate and self.verdict.promoted else self.provisional


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
        self.turns = folds_of(images.seen.labels)
        self.start = trainable_part(start, config.scope)
        self.budget = round(config.fraction * backbone.parameter_count)
        self.before = Trial.of(0.0, trainable_part(backbone, config.scope), images, self.remembered)
        self.first = self.before if self.start is self.before.module else self._from_start()
        self.fitted: LearnerState | None = None  # the remembered classes in a space that all trials share
        self.provisional = with_classes(parent, self.before.seen.select(self._new_rows), config.fit)

    def _from_start(self) -> Trial:
        """Another network than the parent's sees the remembered classes elsewhere: they follow to where it does."""
        first = Trial.of(0.0, self.start, self.images, self.remembered)
        bank, space = self.remembered.bank, self.remembered.space
        if self.config.drift and len(bank):
            before, after = (space.embed(trial.seen.inputs) for trial in (self.before, first))
            shift = drift(bank.prototypes, before, after, space, self.config.drift_bandwidth)
            self.remembered = replace(self.remembered, bank=bank.with_copies(bank.prototypes + shift))
        return replace(first, remembered=self.remembered)

    @property
    def _new_rows(self) -> Tensor:
        return torch.arange(len(self.images.shots))

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
        turns = self._unseen_by(trial)
        measured = trial.held_out(turns, fitting)
        candidate = self._state(training, trial, fitting)
        before = self._measured(self.before, turns, self._unfitted, self.provisional)
        after = self._measured(trial, turns, fitting, candidate)
        if judge is None:
            verdict = Verdict(True, "not judged", before.accuracy, after.accuracy)
        else:
            verdict = judge(before, after)
        served = trial if verdict.promoted else self.before
        return Refinement(self.provisional, candidate, verdict, served, measured, trial.blend, shrink)

    def diverged(self, error: Diverged) -> Refinement:
        measured = self._measured(self.before, self.turns, self._unfitted, self.provisional)
        verdict = Verdict(False, str(error), measured.accuracy, Measure(None, None))
        nothing = self.before.held_out(torch.full_like(self.turns, -1), self.config.fit)
        return Refinement(self.provisional, None, verdict, self.before, nothing, 0.0, None)

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
            self.fitted = in_fitted_space(self.remembered, self.first.seen, fitting)
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
        """Go from the first weights towards the trained ones as long as held-out images gain beyond their error."""
        if training is None:
            return self.first
        if not self.config.search:
            return self._trial(training, self.config.blend)
        turns = torch.where(self.turns == 0, 0, -1)
        best, most = self.first, self._evidence(self.first, turns, fitting)
        for blend in BLENDS:
            trial = self._trial(training, blend)
            evidence = self._evidence(trial, turns, fitting)
            gains = evidence - most
            if not float(gains.mean()) > BEYOND_CHANCE * float(gains.std()) / len(gains) ** 0.5:
                break
            best, most = trial, evidence
        return best

    def _unseen_by(self, trial: Trial) -> Tensor:
        """The turns whose shots the network has not learned from: a trained one has seen all but the first, or all."""
        if trial.blend == 0:
            return self.turns
        return torch.where(self.turns == 0, 0 if self.config.search else -1, -1)

    def _trial(self, training: TailTraining, blend: float) -> Trial:
        module = blended(self.start, training.module, blend)
        trial = Trial.of(blend, module, self.images, self.remembered)
        if not torch.isfinite(trial.seen.inputs).all():
            raise Diverged("the trained network gives features that are not finite; its learning rate is too high")
        remembered = training.remembered_after(self.remembered, self._drift(training, trial))
        if self.fitted is not None:
            remembered = replace(in_space(remembered, self.fitted.space), scatter=self.fitted.scatter)
        return replace(trial, remembered=remembered)

    def _drift(self, training: TailTraining, trial: Trial) -> Tensor | None:
        bank = self.remembered.bank
        if not self.config.drift or not len(bank):
            return None
        space = training_space(self.remembered)
        before, after = (space.embed(features.inputs) for features in (self.first.seen, trial.seen))
        return drift(training.bank.prototypes, before, after, space, self.config.drift_bandwidth)

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
        light = replace(trial.remembered, bank=trial.remembered.bank.newest())
        guard = log_probability(*guard_distances(fit(light, trial.seen, fitting), trial.guard))
        return torch.cat([shots, guard])

    def _measured(self, trial: Trial, turns: Tensor, fitting: FitConfig, state: LearnerState) -> Measured:
        found = trial.held_out(turns, fitting)
        new = torch.isin(found.labels, self.images.shots.labels)
        old, evidence = found.right[~new], [found.log_probability[new]]
        if trial.guard is not None:
            distances, own = guard_distances(state, trial.guard)
            old = torch.cat([old, distances.argmin(1) == own])
            evidence.append(log_probability(distances, own))
        return Measured(old, found.right[new], torch.cat(evidence))

    def _state(self, training: "TailTraining | None", trial: Trial, fitting: FitConfig) -> LearnerState:
        state = fit(trial.remembered, trial.seen, fitting)
        weights = dict(self.parent.weights)
        if training is not None or trial.module is not self.before.module:
            own, prefix = trial.module.state_dict(), prefix_of(self.config.scope)
            names = training.masks if training is not None else own
            weights |= {prefix + name: own[name].clone() for name in names}
        return replace(state, weights=weights)


def blended(first: nn.Module, trained: nn.Module, share: float) -> nn.Module:
    """Go this share of the way from the first weights to the trained ones (Wortsman et al., CVPR 2022).

    Exactly the first at 0 and the trained at 1.
    """
    module, target = deepcopy(first), trained.state_dict()
    module.load_state_dict(
        {
            name: torch.lerp(tensor, target[name], share) if tensor.is_floating_point() and share < 1 else target[name]
            for name, tensor in first.state_dict().items()
        }
    )
    return module.eval()


def guard_distances(state: LearnerState, guard: LabelledViews) -> tuple[Tensor, Tensor]:
    """Of guard features (G, 1, M) to every class (G, K), and the column of each one's class (G,)."""
    distances = state.space.distances(state.space.embed(guard.inputs[:, 0]), state.bank.prototypes, state.bank.shots)
    return distances, torch.tensor(state.bank.rows(guard.labels.tolist()))
