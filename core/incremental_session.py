"""An incremental session: learn new classes from a few shots and keep the old ones (paper, section IV).

It never trains on old images. Old classes are represented by their prototypes, which take part in the loss and move
with the network. Nothing that is given changes; the session returns the next state.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from core.backbones import Backbone
from core.bank import PrototypeBank
from core.calibration import Recolouring, Statistics, follow, statistics_of
from core.drift import compensated
from core.episodes import Episode, draw_episode, draw_negatives
from core.errors import Diverged
from core.losses import (
    LossKind,
    Margins,
    Quadruplets,
    consistency_loss,
    correlation_loss,
    session_loss,
)
from core.progress import Progress, Report, silent
from core.prototypes import Prior, mean_prototypes, supported
from core.selection import Masks, freeze_unselected, mask_gradients, smallest_weights
from core.space import Space, euclidean
from core.state import LearnerState
from core.views import CPU, LabelledViews, Scope, as_batch, features_of, prefix_of, trainable_part

MOST_CORRELATED = 256  # prototypes in one step of L_COR at most: bounds its K² cost


@dataclass(frozen=True)
class IncrementalConfig:
    """How a session learns. The defaults were chosen on base-class data; `paper()` has the values of the paper."""

    epochs: int = 4
    episodes: int = 5  # per epoch
    classes_per_episode: int = 10  # N_C
    learning_rate: float = 1e-5
    milestones: tuple[float, ...] = ()  # shares of the epochs after which the rate is divided by 5
    momentum: float = 0.9
    weight_decay: float = 1e-5
    fraction: float = 0.1  # share of the backbone's parameters that may change
    scope: Scope = "tail"
    loss: LossKind = "cross-entropy-quadruplet"
    margins: Margins = field(default_factory=Margins)
    sharpness: float = 16.0  # τ of the prototypical cross-entropy
    prototype_rate: float = 0.1  # λ, how fast old prototypes follow L_COR + L_CS
    calibration: bool = True
    statistics_momentum: float = 0.9
    drift: bool = True
    drift_bandwidth: float = 1.0
    prior: Prior = "span"  # how well-known classes predict a new one
    prior_shots: float = 5.0  # how many images that prediction is worth
    seed: int = 0

    @classmethod
    def paper(cls) -> "IncrementalConfig":
        """Section V-B of the paper, without our additions."""
        return cls(
            epochs=60,
            episodes=10,
            learning_rate=2.0,
            milestones=(5 / 12, 7 / 12, 3 / 4, 11 / 12),
            momentum=0.0,
            scope="all",
            loss="prototypical-quadruplet",
            drift=False,
            prior_shots=0.0,
        )


@dataclass(frozen=True, eq=False)
class SessionOutcome:
    state: LearnerState
    module: nn.Module  # the part of the backbone that was trained, in evaluation mode on the CPU
    features: Tensor  # (S, V, M) of the shots under that module


def teach(backbone: Backbone, parent: LearnerState, shots: LabelledViews, config: IncrementalConfig) -> LearnerState:
    """Add classes without training: prototypes under the parent's weights. This is the provisional version."""
    shots.require_images()
    features = features_of(trainable_part(backbone, config.scope), shots, CPU)
    return add_classes(parent, LabelledViews(features, shots.labels), config)


def add_classes(state: LearnerState, features: LabelledViews, config: IncrementalConfig) -> LearnerState:
    """The state with new classes, whose prototypes are made of their shots' features (S, V, M) under its weights."""
    embeddings = LabelledViews(state.space.embed(features.inputs), features.labels)
    return replace(state, bank=_with_new_classes(state.bank, embeddings, config))


def incremental_session(
    backbone: Backbone,
    parent: LearnerState,
    shots: LabelledViews,
    config: IncrementalConfig,
    *,
    features: Tensor | None = None,
    device: torch.device | str = "cpu",
    report: Report = silent,
) -> SessionOutcome:
    """Refine `parent`, whose weights `backbone` carries, with the shots of classes that it does not know yet.

    `features`: those of the shots (S, V, M) under the parent's weights, where the caller has them already.
    """
    shots.require_images()
    if features is None:
        features = features_of(trainable_part(backbone, config.scope), shots, CPU)
    run = _Run(backbone, parent, shots, features, config, torch.device(device))
    if run.can_train:
        run.train(report)
    return run.outcome()


class _Run:
    """The changing parts of one session: a copy of the network, and the current prototypes of the old classes."""

    def __init__(
        self,
        backbone: Backbone,
        parent: LearnerState,
        shots: LabelledViews,
        features: Tensor,
        config: IncrementalConfig,
        device: torch.device,
    ) -> None:
        self.parent = parent
        self.shots = shots
        self.config = config
        self.device = device
        self.generator = torch.Generator().manual_seed(config.seed)
        self.module = deepcopy(trainable_part(backbone, config.scope)).to(device)
        budget = round(config.fraction * backbone.parameter_count)
        self.masks: Masks = smallest_weights(self.module, budget)
        self.space: Space = parent.space.to(device)
        self.before = LabelledViews(parent.space.embed(features), shots.labels)  # (S, V, M)
        self.past = parent.bank.prototypes.to(device)  # (P, M) before calibration: what λ moves
        self.initial = parent.bank.initial.to(device)
        self.current = _prototypes(parent.bank, self.before, config).to(device)  # (N, M) for classes outside an episode
        self.running = parent.bank.statistics
        self.recolouring: Recolouring | None = None  # the identity until training begins
        self.owners = shots.owners

    @property
    def can_train(self) -> bool:
        """A query needs its own class and two others, and there must be weights that may change."""
        steps = self.config.epochs * self.config.episodes
        return len(self.past) + len(self.current) >= 3 and steps > 0 and any(mask.any() for mask in self.masks.values())

    def train(self, report: Report) -> None:
        config = self.config
        parameters = freeze_unselected(self.module, self.masks)
        optimiser = torch.optim.SGD(parameters, lr=config.learning_rate, momentum=config.momentum)
        for epoch in range(config.epochs):
            passed = sum(epoch >= share * config.epochs for share in config.milestones)
            optimiser.param_groups[0]["lr"] = config.learning_rate / 5**passed
            self._refresh_statistics()
            for episode in range(config.episodes):
                losses = self._step(optimiser)
                report(Progress(epoch + 1, config.epochs, episode + 1, config.episodes, losses))
        optimiser.zero_grad()  # frees the gradients: the module outlives the session

    def outcome(self) -> SessionOutcome:
        """Append a copy to every old class, then add the new classes under the trained network."""
        module, space = self.module.cpu().eval(), self.parent.space
        features = features_of(module, self.shots, CPU)
        after = LabelledViews(space.embed(features), self.shots.labels)
        if not torch.isfinite(after.inputs).all():
            raise Diverged("the trained network gives embeddings that are not finite; its learning rate is too high")
        old = self._calibrated(self.past).cpu()
        if self.config.drift:
            old = compensated(old, self.before.inputs, after.inputs, space, self.config.drift_bandwidth)
        bank = self.parent.bank
        if len(bank):
            bank = bank.with_copies(old, self._statistics_now(old))
        own, prefix = module.state_dict(), prefix_of(self.config.scope)
        weights = {**self.parent.weights, **{prefix + name: own[name].clone() for name in self.masks}}
        state = replace(self.parent, weights=weights, bank=_with_new_classes(bank, after, self.config))
        return SessionOutcome(state, module, features)

    def _step(self, optimiser: torch.optim.Optimizer) -> dict[str, float]:
        episode = draw_episode(self.owners, self.shots.views, self.config.classes_per_episode, self.generator)
        loss = self._episode_loss(episode)
        if not torch.isfinite(loss):
            raise Diverged(
                f"the session's loss is {loss.item()}; its learning rate of {self.config.learning_rate} is too high"
            )
        optimiser.zero_grad()
        loss.backward()
        mask_gradients(self.module, self.masks, self.config.weight_decay)
        optimiser.step()
        return {"session": float(loss.detach()), **self._move_past()}

    def _episode_loss(self, episode: Episode) -> Tensor:
        rows = torch.cat([episode.query, episode.support])
        inputs = self.shots.inputs.flatten(0, 1)[rows]
        embeddings = self.space.embed(self.module(as_batch(inputs, self.device)))
        queries, support = embeddings.split([len(episode.query), len(episode.support)])
        prototypes = mean_prototypes(support[:, None], episode.support_class.to(self.device), len(queries))
        current = self.current.index_copy(0, episode.classes.to(self.device), prototypes)
        past = self._calibrated(self.past)
        targets = unit(torch.cat([past, current]))  # (P + N, M)
        distances = euclidean(unit(queries), targets)
        own = len(past) + episode.classes.to(self.device)
        is_past = torch.arange(len(targets), device=self.device) < len(past)
        first, second = draw_negatives(distances, own, is_past, self.generator).T
        quadruplets = Quadruplets(
            distances,
            own,
            distances.gather(1, first[:, None])[:, 0],
            (targets[first] - targets[second]).norm(dim=1),
        )
        return session_loss(self.config.loss, quadruplets, self.config.margins, self.config.sharpness)

    def _move_past(self) -> dict[str, float]:
        """C ← C − λ ∂(L_COR + L_CS)/∂C, eq. 7, with the losses taken at the calibrated prototypes.

        The step is scaled to prototypes of unit length, so that λ means the same in every metric and backbone.
        """
        if not len(self.past) or self.config.prototype_rate == 0:
            return {}
        past = self.past.detach().requires_grad_()
        calibrated = self._calibrated(past)
        chosen = torch.randperm(len(past), generator=self.generator)[:MOST_CORRELATED].to(self.device)
        apart = correlation_loss(calibrated[chosen])
        near = consistency_loss(calibrated, self.initial)
        (slope,) = torch.autograd.grad(apart + near, past)
        step = self.config.prototype_rate * past.square().sum(1, keepdim=True) * slope
        self.past = (past - step).detach()
        return {"correlation": float(apart.detach()), "consistency": float(near.detach())}

    def _calibrated(self, prototypes: Tensor) -> Tensor:
        return self.recolouring(prototypes) if self.recolouring else prototypes

    def _refresh_statistics(self) -> None:
        """Once per epoch: let (μ, Σ) follow the current prototypes."""
        if self.config.calibration and len(self.past):
            self.running = self._statistics_now(self.past.cpu())
            if self.recolouring:
                self.recolouring.follow(self.running.to(self.device))
            else:
                smoothed = self.parent.bank.smoothed.to(self.device)
                self.recolouring = Recolouring(self.running.to(self.device), smoothed)

    def _statistics_now(self, newest: Tensor) -> Statistics:
        bank = self.parent.bank
        copies = torch.cat([bank.copies[:, 1:], newest[:, None]], dim=1)
        held = (bank.held + 1).clamp_max(bank.capacity)
        return follow(self.running, statistics_of(copies, held), self.config.statistics_momentum)


def unit(vectors: Tensor) -> Tensor:
    return nn.functional.normalize(vectors, dim=-1)


def _with_new_classes(bank: PrototypeBank, embeddings: LabelledViews, config: IncrementalConfig) -> PrototypeBank:
    prototypes = _prototypes(bank, embeddings, config)
    return bank.with_classes(embeddings.class_ids, prototypes, embeddings.counts.tolist())


def _prototypes(bank: PrototypeBank, embeddings: LabelledViews, config: IncrementalConfig) -> Tensor:
    means = mean_prototypes(embeddings.inputs, embeddings.owners, len(embeddings.class_ids))
    return supported(means, embeddings.counts, bank, prior_shots=config.prior_shots, prior=config.prior)
