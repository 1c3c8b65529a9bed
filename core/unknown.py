"""How far an image may be from a class before it counts as unknown.

There is one threshold for all classes, and each class has a leeway around it: images of some classes differ more from
each other than those of others. Both come from held-out images, compared with their class made without them.
"""

import torch
from torch import Tensor

ACCEPTED = 0.95  # share of images of known classes that the threshold accepts
BELIEF = 1.5  # a class's own mean distance of m held-out images counts m / (m + BELIEF), that of all classes the rest


def threshold_of(distances: Tensor) -> float | None:
    """The distance that accepts 95 % of held-out images (n,); None without images.

    The farthest of a few images is not far enough yet, so the threshold is raised by two n-ths of their spread.
    """
    if not len(distances):
        return None
    spread = float(distances.std()) if len(distances) > 1 else float(distances[0])
    return float(distances.quantile(ACCEPTED)) + 2 * spread / len(distances)


def leeways(typical: Tensor, images: Tensor) -> Tensor:
    """How much farther an image of each class may be, (K,), from the mean distance of so many held-out images (K,)."""
    measured = images > 0
    if not measured.any():
        return torch.zeros(len(images))
    return images / (images + BELIEF) * (typical - typical[measured].mean())


def beyond_leeway(distances: Tensor, owners: Tensor) -> Tensor:
    """Distances of held-out images (n,) to their own classes (n,), less the leeway that the others of a class give it.

    Were an image's own distance part of its leeway, the threshold would be too tight for new images.
    """
    counts = owners.bincount()
    sums = torch.zeros(len(counts)).index_add_(0, owners, distances)
    present = counts > 0
    grand = (sums[present] / counts[present]).mean()
    others = counts[owners] - 1
    mean = (sums[owners] - distances) / others.clamp_min(1)
    return distances - others / (others + BELIEF) * (mean - grand)
