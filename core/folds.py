"""Held-out shots: each shot is measured by a state that was fitted without it.

A class taught with a few shots can spare none for good, so the shots take turns. In each turn about one shot of every
class is left out; space and prototypes are fitted to the others.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from core.classifier import calibrate
from core.state import LearnerState
from core.views import LabelledViews

FOLDS = 5
ENOUGH = 100  # held-out shots: with more of them, further turns tell little for their time

Fit = Callable[[Tensor], LearnerState]  # rows of the shots to fit to → a state


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Distances of shots to every class, fitted without them."""

    rows: Tensor  # (n,) which shots
    labels: Tensor  # (n,) their classes
    views: Tensor  # (n, V, K) distances of all views
    own: Tensor  # (n,) the column of each one's class

    @property
    def distances(self) -> Tensor:
        """Of the centre views, (n, K): what a prediction looks at."""
        return self.views[:, 0]

    @property
    def right(self) -> Tensor:
        return self.distances.argmin(1) == self.own if len(self.own) else self.own.bool()

    @property
    def to_own(self) -> Tensor:
        return self.distances.gather(1, self.own[:, None])[:, 0]

    @property
    def to_nearest(self) -> Tensor:
        return self.distances.amin(1) if len(self.own) else torch.zeros(0)

    @property
    def log_probability(self) -> Tensor:
        """Of the truth, (n,), mean over the views of a shot: they tell more than one view does."""
        if not len(self.own):
            return torch.zeros(0)
        temperature = calibrate(self.distances, self.own).temperature
        own = self.own[:, None, None].expand(-1, self.views.shape[1], 1)
        return torch.log_softmax(-self.views / temperature, dim=2).gather(2, own)[:, :, 0].mean(1)


def folds_of(labels: Tensor, folds: int = FOLDS) -> Tensor:
    """The turn in which each shot is left out, (S,); -1 for the only shot of a class, which never is."""
    turns = torch.full((len(labels),), -1)
    for label in labels.unique():
        rows = (labels == label).nonzero()[:, 0]
        if len(rows) > 1:
            turns[rows] = torch.arange(len(rows)) % folds
    return turns


def held_out(features: LabelledViews, turns: Tensor, fit: Fit) -> HeldOut:
    """Measure the shots of each turn by a state that was fitted to all others."""
    parts: list[HeldOut] = []
    for turn in range(FOLDS):
        out = turns == turn
        if sum(len(part.rows) for part in parts) >= ENOUGH:
            break
        if not out.any():
            continue
        state = fit((~out).nonzero()[:, 0])
        parts.append(_measured(state, features, out.nonzero()[:, 0]))
    if not parts:
        nothing = torch.zeros(0, dtype=torch.long)
        return HeldOut(nothing, nothing, torch.zeros(0, 1, 0), nothing)
    return HeldOut(*(torch.cat([getattr(part, name) for part in parts]) for name in HeldOut.__dataclass_fields__))


def _measured(state: LearnerState, features: LabelledViews, rows: Tensor) -> HeldOut:
    labels = features.labels[rows]
    seen = state.space.embed(features.inputs[rows])  # (n, V, M)
    # In ascending order of class ids: states of different turns may list their classes differently.
    order = sorted(range(len(state.bank)), key=state.bank.class_ids.__getitem__)
    column = {state.bank.class_ids[place]: number for number, place in enumerate(order)}
    distances = _to_classes(state, order, seen.flatten(0, 1)).unflatten(0, seen.shape[:2])
    return HeldOut(rows, labels, distances, torch.tensor([column[label] for label in labels.tolist()]))


def _to_classes(state: LearnerState, order: list[int], seen: Tensor) -> Tensor:
    return state.space.distances(seen, state.bank.prototypes[order], state.bank.shots[order])
