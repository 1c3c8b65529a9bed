"""Measured before promoted: accuracy on guard images and new shots, and the gate that judges by it.

Guard images of base classes are held out of every training. A class taught with a few shots can spare none, so its
shots guard it in the sessions after its own: no later session trains on them, so they show whether the network has
moved away from the class.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from core.classifier import Certainty, NearestClassMean
from core.held_out import held_out_prototypes
from core.state import LearnerState
from core.views import LabelledViews

GUARD_PER_CLASS = 2
TOLERANCE = 0.5  # points of accuracy on old classes that a session may cost
ROUNDING = 1e-6


@dataclass(frozen=True)
class Measure:
    """Percentages; None where there is nothing to measure on."""

    old: float | None  # guard images of the classes known before
    new: float | None  # the new shots, each compared with a prototype made without it


@dataclass(frozen=True)
class Verdict:
    promoted: bool
    reason: str
    before: Measure  # the parent, with the new classes added untrained
    after: Measure

    @property
    def forgetting(self) -> float | None:
        """Points lost on the old classes; negative where they got better."""
        if self.before.old is None or self.after.old is None:
            return None
        return self.before.old - self.after.old


Judge = Callable[[Measure, Measure], Verdict]  # before, after


def hold_out(labels: Tensor, per_class: int = GUARD_PER_CLASS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to guard with; a class keeps at least two images to learn from."""
    generator = torch.Generator().manual_seed(seed)
    guard = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        rows = (labels == label).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        guard[rows[: max(0, min(per_class, len(rows) - 2))]] = True
    return (~guard).nonzero()[:, 0], guard.nonzero()[:, 0]


def measure(
    state: LearnerState, *, guard: LabelledViews | None, shots: LabelledViews, prior_shots: float = 0.0
) -> Measure:
    """Accuracy of a state whose bank holds the shots' classes; `guard` and `shots` hold features under its weights."""
    shots.require_images()
    old = None
    if guard is not None and len(guard):
        classifier = NearestClassMean(state.space, state.bank, Certainty())
        old = _percentage(classifier.distances(guard.inputs[:, 0]), state.bank.rows(guard.labels.tolist()))
    rows = state.bank.rows(shots.labels.tolist())
    return Measure(old, new=_percentage(_leave_one_out(shots, rows, state, prior_shots), rows))


def judge(before: Measure, after: Measure, tolerance: float = TOLERANCE) -> Verdict:
    """Promote a candidate that loses at most the tolerance on the old classes and nothing on the new ones."""
    for name, allowed in (("old", tolerance), ("new", 0.0)):
        was, now = getattr(before, name), getattr(after, name)
        if was is not None and was - now > allowed + ROUNDING:
            reason = f"accuracy on {name} classes fell from {was:.1f} to {now:.1f}; at most {allowed:.1f} may be lost"
            return Verdict(False, reason, before, after)
    return Verdict(True, "no loss beyond the tolerance", before, after)


def _leave_one_out(shots: LabelledViews, rows: list[int], state: LearnerState, prior_shots: float) -> Tensor:
    """Distances (S, K) of every shot's centre view, its own class represented by its other shots."""
    bank, space = state.bank, state.space
    embeddings = space.embed(shots.inputs)
    prototypes = held_out_prototypes(embeddings, shots, bank, prior_shots=prior_shots)
    distances = space.distances(embeddings[:, 0], bank.prototypes)
    own = space.apart(embeddings[:, 0], prototypes)
    return distances.scatter(1, torch.tensor(rows)[:, None], own[:, None])


def _percentage(distances: Tensor, rows: list[int]) -> float:
    return 100 * float((distances.argmin(1) == torch.tensor(rows)).float().mean())
