"""Measured before promoted: what a session is worth on images that it did not learn from, and the gate that judges it.

Guard images of base classes are held out of every training. Of classes taught with a few shots, one shot at a time is
held out. Parent and candidate are compared image by image, so that chance is told from gain.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

GUARD_PER_CLASS = 2
TOLERANCE = 0.5  # points of accuracy on old classes that a session may cost
CONFIDENCE = 0.2533  # standard errors: a session without any gain is rejected in six of ten cases
FEWEST = 4  # held-out images: an error estimated from fewer means nothing


@dataclass(frozen=True)
class Measure:
    """Percentages; None where there is nothing to measure on."""

    old: float | None  # images of the classes known before
    new: float | None  # held-out shots of the new classes


@dataclass(frozen=True, eq=False)
class Measured:
    """What a version makes of images that it was not made from. Parent and candidate list the same ones."""

    old_right: Tensor  # (o,) whether an image of an old class is nearest to it
    new_right: Tensor  # (s,) whether a held-out shot is
    log_probability: Tensor  # (n,) of the truth, for each image that neither of the two has learned from

    @property
    def accuracy(self) -> Measure:
        return Measure(_percentage(self.old_right), _percentage(self.new_right))


@dataclass(frozen=True)
class Verdict:
    promoted: bool
    reason: str
    before: Measure  # the parent, with the new classes added untrained
    after: Measure
    gain: float | None = None  # in the log-probability of the truth, mean over held-out images
    error: float | None = None  # standard error of the gain

    @property
    def forgetting(self) -> float | None:
        """Points lost on the old classes; negative where they got better."""
        if self.before.old is None or self.after.old is None:
            return None
        return self.before.old - self.after.old


Judge = Callable[[Measured, Measured], Verdict]  # before, after


def hold_out(labels: Tensor, per_class: int = GUARD_PER_CLASS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to guard with; a class keeps at least two images to learn from."""
    generator = torch.Generator().manual_seed(seed)
    guard = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        rows = (labels == label).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        guard[rows[: max(0, min(per_class, len(rows) - 2))]] = True
    return (~guard).nonzero()[:, 0], guard.nonzero()[:, 0]


def judge(before: Measured, after: Measured, tolerance: float = TOLERANCE) -> Verdict:
    """Promote a candidate that is better than its parent beyond chance, and forgets nothing beyond the tolerance."""
    accuracy = (before.accuracy, after.accuracy)
    lost = _lost(before.old_right, after.old_right)
    if len(before.old_right) and lost > tolerance:
        was, now = accuracy[0].old, accuracy[1].old
        reason = f"accuracy on old classes fell from {was:.1f} to {now:.1f}, beyond chance and {tolerance:.1f} points"
        return Verdict(False, reason, *accuracy)
    gains = after.log_probability - before.log_probability
    if len(gains) < FEWEST:
        return Verdict(False, f"{len(gains)} held-out images are too few to tell whether it is better", *accuracy)
    gain, error = float(gains.mean()), float(gains.std()) / math.sqrt(len(gains))
    figures = f"by {gain:.3f} ± {error:.3f} in log-probability on {len(gains)} held-out images"
    if not gain > CONFIDENCE * error:  # written this way round so that NaN is rejected too
        return Verdict(False, f"not better beyond chance: {figures}", *accuracy, gain, error)
    return Verdict(True, f"better {figures}", *accuracy, gain, error)


def _lost(before: Tensor, after: Tensor) -> float:
    """Points of accuracy lost, less the standard error of the comparison (McNemar): only images that differ count."""
    if not len(before):
        return 0.0
    worse, better = int((before & ~after).sum()), int((~before & after).sum())
    return 100 * (worse - better - math.sqrt(worse + better)) / len(before)


def _percentage(right: Tensor) -> float | None:
    return 100 * float(right.float().mean()) if len(right) else None
