"""The space in which prototypes live and distances are measured, with one of four metrics.

A metric defines how a feature vector becomes an embedding (`embed`), whose means are prototypes, and how far an
embedding is from each prototype (`distances`). `whitened` is fitted by sessions to what was taught; before the first
one it equals `power-cosine`, which needs no fitting.
"""

from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

Metric = Literal["euclidean", "cosine", "power-cosine", "whitened"]
METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True, eq=False)
class Whitening:
    """Origin, and inverse square root of the pooled within-class covariance of power-normalised features."""

    origin: Tensor  # (M,)
    projection: Tensor  # (M, M)


@dataclass(frozen=True, eq=False)
class Space:
    """`allowance`: how much nearer a class of few images is taken to be. Their mean is noisy, so that further images of
    the class are less similar to it than those of a well-known class are to theirs.
    """

    metric: Metric
    whitening: Whitening | None = None
    allowance: float = 0.0  # cosines with a class of n images are multiplied by 1 + allowance / n
    by_class: bool = False  # whether each class has a leeway of its own around the threshold for unknown

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

    def targets(self, prototypes: Tensor, shots: Tensor | None = None) -> Tensor:
        """Prototypes (K, M) of so many images (K,), ready to be compared with; without `shots`, of very many."""
        targets = self.comparable(prototypes)
        return targets if shots is None or not self.allowance else targets * self.favour(shots)[:, None]

    def allowing(self, allowance: float) -> "Space":
        """The same space with another allowance for classes of few images."""
        return self if allowance == self.allowance else replace(self, allowance=allowance)

    def favour(self, shots: Tensor) -> Tensor:
        """What cosines with classes of so many images are multiplied by."""
        return 1 + self.allowance / shots.clamp_min(1).to(torch.float32)

    def distances(self, embeddings: Tensor, prototypes: Tensor, shots: Tensor | None = None) -> Tensor:
        """How far each embedding is from each prototype of so many images, (n, M), (K, M), (K,) → (n, K).

        Euclidean, or 1 − cosine.
        """
        queries, targets = self.comparable(embeddings), self.targets(prototypes, shots)
        return self.from_products(queries @ targets.T, queries, targets)

    def from_products(self, products: Tensor, queries: Tensor, targets: Tensor) -> Tensor:
        """`distances` of comparable vectors from their inner products (n, K), which may be overwritten."""
        if self.metric == "euclidean":
            return _root(_square_sums(queries, targets) - 2 * products)
        return products.neg_().add_(1).clamp_min_(0)  # rounding may take a cosine above one

    def apart(self, embeddings: Tensor, prototypes: Tensor, shots: Tensor | None = None) -> Tensor:
        """How far each embedding is from the prototype of the same row, (n, M), (n, M), (n,) → (n,)."""
        one, other = self.comparable(embeddings), self.targets(prototypes, shots)
        if self.metric == "euclidean":
            return (one - other).square().sum(-1).sqrt()
        return (1 - (one * other).sum(-1)).clamp_min(0)

    def to(self, device: torch.device) -> "Space":
        if self.whitening is None:
            return self
        moved = Whitening(self.whitening.origin.to(device), self.whitening.projection.to(device))
        return replace(self, whitening=moved)


def euclidean(queries: Tensor, targets: Tensor) -> Tensor:
    """Distances (n, M), (K, M) → (n, K) by one matrix product, differentiably."""
    return _root(_square_sums(queries, targets) - 2 * (queries @ targets.T))


def _square_sums(queries: Tensor, targets: Tensor) -> Tensor:
    return queries.square().sum(1, keepdim=True) + targets.square().sum(1)  # (n, K)


def _root(squares: Tensor) -> Tensor:
    return squares.clamp_min(1e-8).sqrt()  # the floor keeps the gradient finite where two points coincide


def power_normalised(features: Tensor) -> Tensor:
    """Square root of each feature's size, with its sign, at unit length: dampens the few that are very large."""
    # The slope of the root at zero is infinite; the floor keeps gradients finite and changes no distance that matters.
    roots = features.abs().clamp_min(1e-8).sqrt()
    return F.normalize(torch.where(features < 0, -roots, roots), dim=-1)


class Deviations(Protocol):
    """What a space is whitened by: the within-class scatter (`core.scatter`)."""

    @property
    def typical(self) -> Tensor: ...

    @property
    def spectrum(self) -> tuple[Tensor, Tensor]: ...


def whitened(scatter: Deviations, origin: Tensor, shrink: float) -> Space:
    """Centred on `origin` (M,), and scaled so that images of a class differ alike in every direction.

    `shrink`: multiple of the mean within-class variance that is added to every variance before it is inverted: with
    fewer images than dimensions the small variances are not known, and inverting them amplifies noise.
    """
    whitening = Whitening(origin, projection(scatter.spectrum, scatter.typical, shrink))
    return Space("whitened", whitening, by_class=True)


def projection(spectrum: tuple[Tensor, Tensor], typical: Tensor, shrink: float) -> Tensor:
    """The inverse root of the shrunk covariance, (M, M), from its variances (r,) and directions (M, r).

    Scaled by the typical variance, so that embeddings keep the size of unit vectors whatever the data.
    """
    variances, directions = spectrum
    elsewhere = shrink**-0.5  # along directions without variance
    scales = (typical / (variances + shrink * typical)).sqrt() - elsewhere
    matrix: Tensor = (directions * scales) @ directions.T
    matrix.diagonal().add_(elsewhere)
    return matrix


class SpaceChange:
    """Moves embeddings from one space to another of the same features, exactly: both are linear.

    So prototypes and statistics move with a space that is fitted again, and no image is needed.
    """

    def __init__(self, old: Space, new: Space) -> None:
        self._matrix: Tensor | None = None  # None: the identity
        self._shift: Tensor | float = 0.0
        if old.whitening is new.whitening:
            return
        if new.whitening is not None:
            self._matrix = new.whitening.projection.double()
            self._shift = -new.whitening.origin.double() @ self._matrix
        if old.whitening is not None:
            onward = self._matrix if self._matrix is not None else torch.eye(len(old.whitening.origin)).double()
            self._shift = self._shift + old.whitening.origin.double() @ onward
            self._matrix = torch.linalg.solve(old.whitening.projection.double(), onward)
        assert self._matrix is not None
        assert isinstance(self._shift, Tensor)
        self._matrix, self._shift = self._matrix.float(), self._shift.float()

    @property
    def is_identity(self) -> bool:
        return self._matrix is None

    def points(self, embeddings: Tensor) -> Tensor:
        """Embeddings, prototypes and means, (…, M)."""
        return embeddings if self._matrix is None else self.directions(embeddings).add_(self._shift)

    def directions(self, differences: Tensor) -> Tensor:
        """Differences of embeddings, such as the rows of a factor, (…, M)."""
        return differences if self._matrix is None else differences @ self._matrix


def class_means(vectors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over images and views of each class in ascending order, (C, M), and the row of each image's class."""
    classes, members = labels.unique(return_inverse=True)
    sums = vectors.new_zeros(len(classes), vectors.shape[-1]).index_add_(0, members, vectors.mean(1))
    return sums / members.bincount(minlength=len(classes))[:, None], members
