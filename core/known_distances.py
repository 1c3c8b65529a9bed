"""How far held-out images of known classes are from the nearest class: the threshold for unknown rests on it.

The nearest class need not be their own. An image that is taken for one of another class is accepted too, and the more
classes there are, the more often that happens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.bank import ClassId
from core.folds import HeldOut
from core.held_out import held_out_distances
from core.state import LearnerState
from core.trials import guard_distances
from core.views import LabelledViews


@dataclass(frozen=True, eq=False)
class KnownDistances:
    labels: Tensor  # (n,)
    distances: Tensor  # (n,)

    @classmethod
    def of(cls, found: HeldOut) -> "KnownDistances":
        return cls(found.labels, found.to_nearest)

    def by_class(self) -> dict[ClassId, Tensor]:
        return {ClassId(label): self.distances[self.labels == label] for label in self.labels.unique().tolist()}


def after_training(measured: HeldOut, untrained: HeldOut) -> HeldOut:
    """All shots: those that training left out as the trained network sees them, the others as the untrained one does.

    The others are moved as far as the first have moved on average, so that thresholds made of both fit the trained one.
    A class then has several held-out shots instead of one, and nothing hangs on the luck of a few.
    """
    common = torch.isin(untrained.rows, measured.rows)
    if not common.any():
        return measured
    moved = measured.to_nearest.mean() - untrained.to_nearest[common].mean()
    return HeldOut(
        torch.cat([measured.rows, untrained.rows[~common]]),
        torch.cat([measured.labels, untrained.labels[~common]]),
        torch.cat([measured.views, (untrained.views[~common] + moved).clamp_min(0)]),
        torch.cat([measured.own, untrained.own[~common]]),
    )


def distances_by_class(
    found: KnownDistances, state: LearnerState, seen: LabelledViews, guard: LabelledViews | None, prior_shots: float
) -> dict[ClassId, Tensor]:
    """Also of classes whose shots could not be held out: by the views of a single shot, and by guard images."""
    known = found.by_class()
    rest = seen.select((~torch.isin(seen.labels, found.labels)).nonzero()[:, 0])
    if len(rest):  # single shots, of which only views can be held out, and shots that were all trained on
        known |= KnownDistances(rest.labels, _by_views(state, rest, prior_shots)).by_class()
    if guard is not None:
        nearest = guard_distances(state, guard)[0].amin(1)
        known = KnownDistances(guard.labels, nearest).by_class() | known
    return known


def _by_views(state: LearnerState, shots: LabelledViews, prior_shots: float) -> Tensor:
    """A single shot may seem very far from its class, but it is never accepted for more than the nearest other one."""
    embeddings = state.space.embed(shots.inputs)
    distances = state.space.distances(embeddings[:, 0], state.bank.prototypes, state.bank.shots)
    own = torch.tensor(state.bank.rows(shots.labels.tolist()))
    apart = held_out_distances(state.space, embeddings, shots, state.bank, prior_shots=prior_shots)
    return distances.scatter(1, own[:, None], apart[:, None]).amin(1)
