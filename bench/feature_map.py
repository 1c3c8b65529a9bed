"""Test images of some classes in two dimensions, as in figure 3 of the paper, and how well the classes are separated.

Principal components, not t-SNE: they are the same in every run, and distances in the map are those of the space.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SHOWN = 5  # classes of the base session, and as many of the last


@dataclass(frozen=True)
class FeatureMap:
    class_ids: list[int]  # of each point
    points: list[tuple[float, float]]
    separation: float  # mean distance between class means over mean distance of an image from its own


def feature_map(old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> FeatureMap:
    """Of embeddings (n, M) and labels (n,) of the base session and of the last: their first classes."""
    parts = [_first_classes(*part) for part in (old, new)]
    embeddings, labels = (torch.cat(both) for both in zip(*parts, strict=True))
    if torch.equal(old[1], new[1]):  # a stream of one session
        embeddings, labels = parts[0]
    centred = (embeddings - embeddings.mean(0)).double()
    axes = torch.linalg.svd(centred, full_matrices=False)[2][:2]  # (2, M)
    axes = axes * torch.sign(axes.gather(1, axes.abs().argmax(1, keepdim=True)))  # a direction has no sign of its own
    points = [(round(x, 4), round(y, 4)) for x, y in (centred @ axes.T).tolist()]
    return FeatureMap(labels.tolist(), points, round(separation(embeddings, labels), 4))


def separation(embeddings: Tensor, labels: Tensor) -> float:
    """How far class means are from each other, relative to how far images are from their own."""
    classes, owners = labels.unique(return_inverse=True)
    means = torch.stack([embeddings[owners == row].mean(0) for row in range(len(classes))])
    within = (embeddings - means[owners]).norm(dim=1).mean()
    between = torch.pdist(means).mean() if len(means) > 1 else means.new_zeros(())
    return float(between / within.clamp_min(1e-12))


def _first_classes(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    chosen = torch.isin(labels, labels.unique()[:SHOWN])
    return embeddings[chosen], labels[chosen]
