"""Networks that a session might serve: blends of its first weights and the trained ones, each with its features."""

from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from core.fitting import FitConfig, fit, scatter_with
from core.folds import HeldOut, held_out
from core.scatter import Scatter
from core.state import LearnerState
from core.views import CPU, LabelledViews, features_of


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
    remembered: LearnerState  # the classes without images, as this network would see them, with their newest copy only
    _scatters: dict[tuple[int, ...], Scatter] = field(init=False, default_factory=dict)  # by rows of shots

    @classmethod
    def of(cls, blend: float, module: nn.Module, images: SessionImages, remembered: LearnerState) -> "Trial":
        seen = LabelledViews(features_of(module, images.seen, CPU), images.seen.labels)
        guard = None
        if images.guard is not None and len(images.guard):
            guard = LabelledViews(features_of(module, images.guard.centre(), CPU), images.guard.labels)
        return cls(blend, module, seen, guard, remembered)

    def held_out(self, turns: Tensor, config: FitConfig) -> HeldOut:
        """The shots of these turns, each measured by a state that was fitted without it."""
        return held_out(self.seen, turns, lambda rows: self.fitted(config, rows))

    def fitted(
        self, config: FitConfig, rows: Tensor | None = None, remembered: LearnerState | None = None
    ) -> LearnerState:
        """A state fitted to these shots, all of them unless said.

        The same shots are fitted to with one shrinkage after another, and what costs most does not depend on it.
        `remembered`: the remembered classes with their older copies.
        """
        remembered = remembered or self.remembered
        features = self.seen if rows is None else self.seen.select(rows)
        if config.shrink is None:
            return fit(remembered, features, config)
        key = tuple(range(len(self.seen)) if rows is None else rows.tolist())
        if key not in self._scatters:
            self._scatters[key] = scatter_with(self.remembered, features)
        return fit(remembered, features, config, self._scatters[key])


def light(state: LearnerState) -> LearnerState:
    """The same classes with their newest copy only."""
    return replace(state, bank=state.bank.newest())


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
