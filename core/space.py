"""The space in which prototypes live and distances are measured, with one of four metrics.

A metric defines how a feature vector becomes an embedding (`embed`), whose means are prototypes, and how far an
embedding is from each prototype (`distances`). `whitened` is fitted on a base session; before the first one it equals
`power-cosine`, which needs no fitting.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

Metric = Literal["euclidean", "cosine", "power-cosine", "whitened"]
METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True, eq=False)
class Whitening:
    """Origin, and inverse square root of the pooled within-class covariance of a base session's features."""

    origin: Tensor  # (M,)
    projection: Tensor  # (M, M)


@dataclass(frozen=True, eq=False)
class Space:
    metric: Metric
    whitening: Whitening | None = None

    def embed(self, features: Tensor) -> Tensor:
        """Features (…, M) → embeddings (…, M), differentiably."""
        if self.metric == "euclidean":
            return features
        if self.metric == "cosine":
            return F.normalize(features, dim=-1)
        powered = power_normalised(features)
        if self.whitening is None:
            return powered
        return (powered - self.whitening.origin) @ self.whitening.projection

    def comparable(self, embeddings: Tensor) -> Tensor:
        """Embeddings or prototypes such that their Euclidean distance ranks as the metric does."""
        return embeddings if self.metric == "euclidean" else F.normalize(embeddings, dim=-1)

    def distances(self, embeddings: Tensor, prototypes: Tensor) -> Tensor:
        """How far each embedding is from each prototype, (n, M), (K, M) → (n, K): Euclidean, or 1 − cosine."""
        queries, targets = self.comparable(embeddings), self.comparable(prototypes)
        return self.from_products(queries @ targets.T, queries, targets)

    def from_products(self, products: Tensor, queries: Tensor, targets: Tensor) -> Tensor:
        """`distances` of comparable vectors from their inner products (n, K), which may be overwritten."""
        if self.metric == "euclidean":
            return _root(_square_sums(queries, targets) - 2 * products)
        return products.neg_().add_(1).clamp_min_(0)  # rounding may take a cosine above one

    def apart(self, embeddings: Tensor, prototypes: Tensor) -> Tensor:
        """How far each embedding is from the prototype of the same row, (n, M), (n, M) → (n,)."""
        one, other = self.comparable(embeddings), self.comparable(prototypes)
        if self.metric == "euclidean":
            return (one - other).square().sum(-1).sqrt()
        return (1 - (one * other).sum(-1)).clamp_min(0)

    def to(self, device: torch.device) -> "Space":
        if self.whitening is None:
            return self
        moved = Whitening(self.whitening.origin.to(device), self.whitening.projection.to(device))
        return Space(self.metric, moved)


def euclidean(queries: Tensor, targets: Tensor) -> Tensor:
    """Distances (n, M), (K, M) → (n, K) by one matrix product, differentiably."""
    return _root(_square_sums(queries, targets) - 2 * (queries @ targets.T))


def _square_sums(queries: Tensor, targets: Tensor) -> Tensor:
    return queries.square().sum(1, keepdim=True) + targets.square().sum(1)  # (n, K)


def _root(squares: Tensor) -> Tensor:
    return squares.clamp_min(1e-8).sqrt()  # the floor keeps the gradient finite where two points coincide


def power_normalised(features: Tensor) -> Tensor:
    """Square root of the non-negative features, at unit length: dampens the few that are very large."""
    # The slope of the root at zero is infinite; the floor keeps gradients finite and changes no distance that matters.
    return F.normalize(features.clamp_min(1e-8).sqrt(), dim=-1)


def fit_space(metric: Metric, features: Tensor, labels: Tensor, *, shrink: float = 1.0) -> Space:
    """Fit a metric on the base session's features (n, views, M) with labels (n,).

    `shrink`: multiple of the mean within-class variance that is added to the diagonal of the covariance before it is
    inverted: with fewer images than dimensions the small variances are not known, and inverting them amplifies noise.
    """
    if metric != "whitened" or len(labels.unique()) < 2:
        return Space(metric)
    powered = power_normalised(features)
    means, members = class_means(powered, labels)
    residuals = (powered - means[members][:, None]).flatten(0, 1)  # (n · views, M)
    within = residuals.T @ residuals / max(1, len(residuals) - len(means))
    typical = within.diagonal().mean().clamp_min(1e-12)  # one image per class in one view has no variance
    # In double precision: the single-precision solver fails on the rounding errors that equal images leave.
    values, vectors = (part.float() for part in torch.linalg.eigh(within.double()))
    # Scaled by the typical variance, so that embeddings keep the size of unit vectors whatever the data.
    scales = (typical / (values.clamp_min(0) + shrink * typical)).sqrt()
    return Space(metric, Whitening(means.mean(0), (vectors * scales) @ vectors.T))


def class_means(vectors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over images and views of each class in ascending order, (C, M), and the row of each image's class."""
    classes, members = labels.unique(return_inverse=True)
    sums = vectors.new_zeros(len(classes), vectors.shape[-1]).index_add_(0, members, vectors.mean(1))
    return sums / members.bincount(minlength=len(classes))[:, None], members
