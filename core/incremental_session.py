"""The training of an incremental session: the tail learns new classes from a few shots (paper, section IV).

Old classes whose images are not at hand take part with their prototypes, which move with the network. Nothing that is
given changes.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from core.bank import ClassId
from core.calibration import Recolouring, Statistics, follow, statistics_of
from core.episodes import draw_episode, draw_negatives, draw_queries
from core.errors import Diverged
from core.fitting import FitConfig
from core.losses import LossKind, Margins, Quadruplets, consistency_loss, correlation_loss, session_loss
from core.progress import Progress, Report
from core.prototypes import Prior, mean_prototypes
from core.scatter import Scatter
from core.selection import Masks, freeze_unselected, mask_gradients, smallest_weights
from core.space import Space, SpaceChange, euclidean
from core.state import LearnerState
from core.views import LabelledViews, Scope, as_batch

WELL_DETERMINED = 4  # times as many deviations as dimensions: a space whitened by fewer fits its own shots too well

SHOTS_PER_EPOCH = 8  # at least: a session of fewer shots has fewer epochs
MOST_REMEMBERED = 1000  # old classes that take part in training, those nearest to the session's: bounds time and memory
MOST_CORRELATED = 256  # prototypes in one step of L_COR at most: bounds its K² cost


@dataclass(frozen=True)
class IncrementalConfig:
    """How a session learns. The defaults were chosen on training images; `paper()` has the values of the paper."""

    epochs: int = 6
    episodes: int = 10  # per epoch: steps of training
    batch: int = 32  # queries in a step, where prototypes are learned
    prototypes: Literal["learned", "support"] = "learned"  # what queries are compared with: see `TailTraining`
    classes_per_episode: int = 10  # N_C, where prototypes come from support images
    optimiser: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 3e-3
    milestones: tuple[float, ...] = ()  # of sgd: shares of the epochs after which the rate is divided by 5
    momentum: float = 0.9  # of sgd
    weight_decay: float = 1e-5
    fraction: float = 0.3  # share of the backbone's parameters that may change
    scope: Scope = "tail"
    loss: LossKind = "cross-entropy-quadruplet"
    margins: Margins = field(default_factory=Margins)
    sharpness: float = 8.0  # τ of the prototypical cross-entropy
    smoothing: float = 0.1  # of its labels
    prototype_rate: float = 0.1  # λ, how fast old prototypes follow L_COR + L_CS
    calibration: bool = True
    statistics_momentum: float = 0.9
    drift: bool = True
    drift_bandwidth: float = 1.0
    blend: float = 0.5  # how far to go from the weights at the start to the trained ones, unless it is searched for
    refit: bool = True  # whether the space is fitted again
    shrink: float = 10.0  # of the whitening, unless it is searched for
    allowance: float = 0.6  # for classes of few images, times their share among all classes
    search: bool = True  # whether the gate chooses blend and shrink on held-out images
    prior: Prior = "span"  # how well-known classes predict a new one
    prior_shots: float = 10.0  # how many images that prediction is worth
    seed: int = 0

    @property
    def fit(self) -> FitConfig:
        if not self.refit:
            return FitConfig(None, None, self.prior, self.prior_shots)
        return FitConfig(self.shrink, self.allowance, self.prior, self.prior_shots)

    @classmethod
    def paper(cls) -> "IncrementalConfig":
        """Section V-B of the paper, without our additions."""
        return cls(
            epochs=60,
            episodes=10,
            prototypes="support",
            optimiser="sgd",
            learning_rate=2.0,
            milestones=(5 / 12, 7 / 12, 3 / 4, 11 / 12),
            momentum=0.0,
            fraction=0.1,
            scope="all",
            loss="prototypical-quadruplet",
            drift=False,
            blend=1.0,
            refit=False,
            search=False,
            prior_shots=0.0,
        )


class TailTraining:
    """One training: a copy of the network, the current prototypes of its classes and of the remembered ones.

    A query is compared with prototypes. Those of the session's classes are parameters, learned together with the tail:
    where they follow a few support images instead, as in the paper, the tail can please them by moving both.
    """

    def __init__(
        self,
        module: nn.Module,
        budget: int,
        remembered: LearnerState,
        shots: LabelledViews,
        features: Tensor,
        config: IncrementalConfig,
        device: torch.device,
    ) -> None:
        """`features` (S, V, M) are those of the shots under `module`; `budget` is how many weights may change."""
        self.shots = shots
        self.owners = shots.owners
        self.config = config
        self.device = device
        self.generator = torch.Generator().manual_seed(config.seed)
        self.module = deepcopy(module).to(device)
        self.masks: Masks = smallest_weights(self.module, budget)
        space = training_space(remembered)
        self.space: Space = space.to(device)
        means = mean_prototypes(space.embed(features), self.owners, len(shots.class_ids))
        self.class_ids = _nearest(remembered, SpaceChange(remembered.space, space), space, means)
        self.bank = remembered.bank.only(self.class_ids).moved(SpaceChange(remembered.space, space))
        self.past = self.bank.prototypes.to(device)  # (P, M) before calibration: what λ moves
        self.initial = self.bank.initial.to(device)
        self.current = nn.Parameter(means.to(device))  # (N, M)
        self.epochs = config.epochs
        if config.prototypes == "learned":  # few shots are learned soon
            self.epochs = min(config.epochs, max(1, len(shots) // SHOTS_PER_EPOCH))
        self.running = self.bank.statistics
        self.recolouring: Recolouring | None = None  # the identity until training begins

    @property
    def possible(self) -> bool:
        """A query needs its own class and two others, and there must be weights that may change."""
        steps = self.epochs * self.config.episodes
        return len(self.past) + len(self.current) >= 3 and steps > 0 and any(mask.any() for mask in self.masks.values())

    def train(self, report: Report) -> nn.Module:
        """The trained module, in evaluation mode on the CPU."""
        config = self.config
        optimiser = self._optimiser()
        schedule = None
        if config.optimiser == "adamw":
            steps = self.epochs * config.episodes
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimiser, config.learning_rate, total_steps=max(6, steps), pct_start=0.2
            )
        for epoch in range(self.epochs):
            if schedule is None:
                passed = sum(epoch >= share * self.epochs for share in config.milestones)
                optimiser.param_groups[0]["lr"] = config.learning_rate / 5**passed
            self._refresh_statistics()
            for episode in range(config.episodes):
                losses = self._step(optimiser)
                if schedule is not None:
                    schedule.step()
                report(Progress(epoch + 1, self.epochs, episode + 1, config.episodes, losses))
        optimiser.zero_grad()  # frees the gradients: the module outlives the session
        return self.module.cpu().eval()

    def remembered_after(self, remembered: LearnerState, shift: Tensor | None) -> LearnerState:
        """The remembered classes with one more copy, in the space of the training; `shift` (P, M) is their drift."""
        space = training_space(remembered)
        bank = remembered.bank.moved(SpaceChange(remembered.space, space))
        if not len(bank):
            return replace(remembered, space=space, bank=bank)
        rows = torch.tensor(bank.rows(self.class_ids))
        newest = bank.prototypes.index_copy(0, rows, self._calibrated(self.past).detach().cpu())
        newest = newest if shift is None else newest + shift
        statistics = None
        if bank.capacity == self.bank.capacity:  # otherwise it is the newest copies alone that are wanted
            statistics = bank.statistics.with_rows(rows, self._statistics_now(newest[rows]))
        return replace(remembered, space=space, bank=bank.with_copies(newest, statistics))

    def _optimiser(self) -> torch.optim.Optimizer:
        """Decay is part of the masked gradient: see `mask_gradients`."""
        learned = freeze_unselected(self.module, self.masks)
        if self.config.prototypes == "learned":
            learned.append(self.current)
        if self.config.optimiser == "sgd":
            return torch.optim.SGD(learned, lr=self.config.learning_rate, momentum=self.config.momentum)
        return torch.optim.AdamW(learned, lr=self.config.learning_rate, weight_decay=0.0)

    def _step(self, optimiser: torch.optim.Optimizer) -> dict[str, float]:
        loss = self._learned_loss() if self.config.prototypes == "learned" else self._support_loss()
        if not torch.isfinite(loss):
            raise Diverged(
                f"the session's loss is {loss.item()}; its learning rate of {self.config.learning_rate} is too high"
            )
        optimiser.zero_grad()
        loss.backward()
        mask_gradients(self.module, self.masks, self.config.weight_decay)
        optimiser.step()
        return {"session": float(loss.detach()), **self._move_past()}

    def _learned_loss(self) -> Tensor:
        """Queries of any of the classes, against prototypes that are learned."""
        shots, views = draw_queries(self.owners, self.shots.views, self.config.batch, self.generator)
        embeddings = self._embed(self.shots.inputs[shots, views])
        return self._loss(embeddings, self.owners[shots].to(self.device), self.current)

    def _support_loss(self) -> Tensor:
        """The episodes of the paper: one query of each class, against the mean of its support."""
        config = self.config
        episode = draw_episode(self.owners, self.shots.views, config.classes_per_episode, self.generator)
        rows = torch.cat([episode.query, episode.support])
        embeddings = self._embed(self.shots.inputs.flatten(0, 1)[rows])
        queries, support = embeddings.split([len(episode.query), len(episode.support)])
        prototypes = mean_prototypes(support[:, None], episode.support_class.to(self.device), len(queries))
        chosen = episode.classes.to(self.device)
        return self._loss(queries, chosen, self.current.detach().index_copy(0, chosen, prototypes))

    def _embed(self, inputs: Tensor) -> Tensor:
        return self.space.embed(self.module(as_batch(inputs, self.device)))

    def _loss(self, queries: Tensor, owners: Tensor, current: Tensor) -> Tensor:
        past = self._calibrated(self.past)
        targets = unit(torch.cat([past, current]))  # (P + N, M)
        distances = euclidean(unit(queries), targets)
        own = len(past) + owners
        is_past = torch.arange(len(targets), device=self.device) < len(past)
        first, second = draw_negatives(distances, own, is_past, self.generator).T
        quadruplets = Quadruplets(
            distances,
            own,
            distances.gather(1, first[:, None])[:, 0],
            (targets[first] - targets[second]).norm(dim=1),
        )
        config = self.config
        return session_loss(config.loss, quadruplets, config.margins, config.sharpness, config.smoothing)

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
                smoothed = self.bank.smoothed.to(self.device)
                self.recolouring = Recolouring(self.running.to(self.device), smoothed)

    def _statistics_now(self, newest: Tensor) -> Statistics:
        bank = self.bank
        copies = torch.cat([bank.copies[:, 1:], newest[:, None]], dim=1)
        held = (bank.held + 1).clamp_max(bank.capacity)
        return follow(self.running, statistics_of(copies, held), self.config.statistics_momentum)


def training_space(remembered: LearnerState) -> Space:
    """The space to train in: the state's own if many images determine it, else the one that needs no fitting.

    A space whitened by a few shots has all of them at their prototypes already: there is nothing left to learn.
    """
    if is_well_determined(remembered.scatter) or (remembered.scatter is None and len(remembered.bank)):
        return remembered.space
    return Space(remembered.space.metric)


def is_well_determined(scatter: Scatter | None) -> bool:
    """Whether so many images are behind a scatter that a few shots more or less make no difference."""
    return scatter is not None and scatter.freedom >= WELL_DETERMINED * scatter.dim


def _nearest(remembered: LearnerState, change: SpaceChange, space: Space, means: Tensor) -> list[ClassId]:
    """The remembered classes that take part in training: those nearest to any of the session's class means (N, M)."""
    bank = remembered.bank
    if len(bank) <= MOST_REMEMBERED:
        return list(bank.class_ids)
    apart = space.distances(change.points(bank.prototypes), means).amin(1)
    rows = apart.topk(MOST_REMEMBERED, largest=False).indices.sort().values
    return [bank.class_ids[row] for row in rows.tolist()]


def unit(vectors: Tensor) -> Tensor:
    return nn.functional.normalize(vectors, dim=-1)
