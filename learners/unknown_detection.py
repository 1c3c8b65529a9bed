"""Unknown detection: the threshold of a version, and how well it works on held-out images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.bank import ClassId
from core.classifier import ACCEPTED, threshold_of


@dataclass(frozen=True)
class UnknownDetection:
    """The threshold, and the shares measured with it; None where there was nothing to measure on."""

    threshold: float | None
    known_accepted: float | None  # percent of held-out images of known classes
    strangers_refused: float | None  # percent of images whose own class was left out
    images: int

    def details(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold,
            "calibrated_to_accept": 100 * ACCEPTED,
            "calibrated_on": self.images,
            "known_accepted": self.known_accepted,
            "strangers_refused": self.strangers_refused,
        }


def detect_unknown(held_out: Mapping[ClassId, Tensor], strangers: Tensor) -> UnknownDetection:
    """`strangers`: distances of images to the nearest class that is not their own, (n,)."""
    pooled = torch.cat(list(held_out.values())) if held_out else torch.zeros(0)
    threshold = threshold_of(pooled)
    if threshold is None:
        return UnknownDetection(None, None, None, 0)
    return UnknownDetection(
        threshold,
        _percentage(pooled <= threshold),
        _percentage(strangers > threshold) if len(strangers) else None,
        len(pooled),
    )


def nearest_other(distances: Tensor, own: Tensor) -> Tensor:
    """Distances (n, K) → to the nearest class that is not row `own` (n,); empty with no other class."""
    if distances.shape[1] < 2 or not len(distances):
        return distances.new_zeros(0)
    return distances.scatter(1, own[:, None], float("inf")).min(1).values


def _percentage(hits: Tensor) -> float:
    return round(100 * float(hits.float().mean()), 2)
