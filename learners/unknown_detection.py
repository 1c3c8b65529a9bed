"""Unknown detection: the threshold of a version, and how well it works on held-out images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from core.bank import ClassId
from core.unknown import ACCEPTED, pooled, threshold_of


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


def detect_unknown(held_out: Mapping[ClassId, Tensor], strangers: Tensor, *, by_class: bool) -> UnknownDetection:
    """`held_out`: by class, how far images that it was made without are from the nearest class, or from it.

    `strangers`: see `strangeness`, (n,).
    """
    known = pooled(held_out.values(), by_class=by_class)
    threshold = threshold_of(known)
    if threshold is None:
        return UnknownDetection(None, None, None, 0)
    return UnknownDetection(
        threshold,
        _percentage(known <= threshold),
        _percentage(strangers > threshold) if len(strangers) else None,
        len(known),
    )


def strangeness(distances: Tensor, own: Tensor, leeway: Tensor) -> Tensor:
    """How far images would be from the nearest class beyond its leeway, if their own class were not known, (n,).

    Distances (n, K), the column of each one's class (n,), or -1; empty if no other class is known.
    """
    if distances.shape[1] < 2 - bool((own < 0).all()) or not len(distances):
        return distances.new_zeros(0)
    nearest, places = without_own(distances, own).min(1)
    return nearest - leeway[places]


def without_own(distances: Tensor, own: Tensor) -> Tensor:
    """Distances (n, K) with an infinite one to each image's own class (n,), or -1."""
    others, known = distances.clone(), own >= 0
    others[known.nonzero()[:, 0], own[known]] = float("inf")
    return others


def _percentage(hits: Tensor) -> float:
    return round(100 * float(hits.float().mean()), 2)
