"""How far an image may be from a class before it counts as unknown.

There is one threshold for all classes, and each class has a leeway around it: images of some classes differ more from
each other than those of others. Both come from held-out images, compared with their class made without them.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

ACCEPTED = 0.95  # share of images of known classes that the threshold accepts
MANY = 200  # held-out images whose quantile can be trusted
DEVIATIONS = 1.95  # 1.645 if distances were normal; chosen so that 95 % of new images are accepted
BELIEF = 1.5  # a class's own mean distance of m held-out images counts m / (m + BELIEF), that of all classes the rest


def threshold_of(distances: Tensor) -> float | None:
    """The distance that accepts 95 % of images of known classes, from held-out ones (n,); None without images.

    Of many images it is their quantile. The farthest few of a few images are chance, so mean and spread are taken then.
    """
    n = len(distances)
    if n >= MANY:
        return float(distances.quantile(ACCEPTED))
    if n > 1:
        return float(distances.mean() + DEVIATIONS * (1 + 2 / n) * distances.std())
    return 3 * float(distances[0]) if n else None


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


def pooled(held_out: Iterable[Tensor], *, by_class: bool) -> Tensor:
    """Distances of the held-out images of all classes, (n,), beyond the leeway of their class where it has one."""
    found = [distances for distances in held_out if len(distances)]
    if not found:
        return torch.zeros(0)
    distances = torch.cat(found)
    if not by_class:
        return distances
    counts = torch.tensor([len(own) for own in found])
    return beyond_leeway(distances, torch.arange(len(counts)).repeat_interleave(counts))
