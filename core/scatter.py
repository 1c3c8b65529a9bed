"""Within-class scatter: how images of one class differ from each other, which is what a space is whitened by.

It is taken over power-normalised features, so it does not depend on any space. A scatter is kept as a factor of a few
rows, and scatters of many classes are pooled by addition: no image is needed again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from core.space import Metric, Space, class_means, power_normalised, whitened

ROWS = 48  # of a class's factor at most: five shots in nine views have 45


@dataclass(frozen=True, eq=False)
class Scatter:
    """A sum of squared deviations, factorᵀ · factor, and from how many independent deviations it comes."""

    factor: Tensor  # (r, M)
    freedom: int

    @property
    def dim(self) -> int:
        return self.factor.shape[1]

    @property
    def typical(self) -> Tensor:
        """The mean variance of a feature."""
        # One image of each class in one view has no variance.
        return (self.factor.square().sum() / (max(1, self.freedom) * self.dim)).clamp_min(1e-12)

    @cached_property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """Variances (r,) and directions (M, r), of the directions that have any.

        In double precision: the single-precision solver fails on the rounding errors that equal images leave. Of a
        factor of few rows, the small matrix of their products tells all.
        """
        rows = self.factor.double()
        few = len(rows) <= self.dim
        values, vectors = torch.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
        present = values > 1e-10 * values[-1].clamp_min(1e-30) if len(values) else values > 0
        values, vectors = values[present], vectors[:, present]
        if few:
            vectors = rows.T @ vectors / values.sqrt()
        return (values / max(1, self.freedom)).float(), vectors.float()

    def compact(self, rows: int = ROWS) -> "Scatter":
        """At most this many rows: the largest directions, scaled up so that the total variance stays the same."""
        if len(self.factor) <= rows:
            return self
        variances, directions = self.spectrum
        kept = (variances * max(1, self.freedom)).sqrt()[-rows:, None] * directions.T[-rows:]
        scale = (self.factor.square().sum() / kept.square().sum().clamp_min(1e-30)).sqrt()
        return Scatter(kept * scale, self.freedom)


def scatter_of(features: Tensor, labels: Tensor) -> Scatter:
    """The pooled scatter of features (n, v, M) around the means of their classes."""
    powered = power_normalised(features)
    means, members = class_means(powered, labels)
    deviations = (powered - means[members][:, None]).flatten(0, 1)  # (n · v, M)
    return _reduced(Scatter(deviations, max(0, len(deviations) - len(means))))


def fit_space(metric: Metric, features: Tensor, labels: Tensor, *, shrink: float = 1.0) -> Space:
    """The space of a base session's features (n, v, M) with labels (n,); only `whitened` has something to fit."""
    if metric != "whitened" or len(labels.unique()) < 2:
        return Space(metric)
    origin = class_means(power_normalised(features), labels)[0].mean(0)
    return whitened(scatter_of(features, labels), origin, shrink)


def pooled(scatters: Iterable[Scatter], dim: int) -> Scatter:
    """The sum of scatters, one after another: of many classes, never all rows are in memory."""
    total: Scatter | None = None
    for scatter in scatters:
        if total is None:
            total = scatter  # of a single one, as it is: its spectrum may be known
        else:
            rows = torch.cat([total.factor, scatter.factor])
            total = _reduced(Scatter(rows, total.freedom + scatter.freedom), slack=4 * dim)
    return Scatter(torch.zeros(0, dim), 0) if total is None else _reduced(total)


def _reduced(scatter: Scatter, slack: int = 0) -> Scatter:
    """The same scatter in no more rows than dimensions, once there are `slack` more than that."""
    if len(scatter.factor) <= scatter.dim + slack:
        return scatter
    variances, directions = scatter.spectrum
    reduced = Scatter((variances * max(1, scatter.freedom)).sqrt()[:, None] * directions.T, scatter.freedom)
    reduced.__dict__["spectrum"] = scatter.spectrum  # the same, and the costly part
    return reduced
