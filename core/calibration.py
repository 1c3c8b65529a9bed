"""Calibration of old prototypes: smoothing, whitening and re-colouring (paper, section IV-E).

A class keeps a few copies of its prototype. Their mean and covariance (μ, Σ) and the same smoothed over the copies'
age (μ̃, Σ̃) describe how the prototype has moved, and `Recolouring` maps a prototype from the first pair to the second.
Σ is kept as a factor of a few rows: an M×M matrix is never formed, and only the rank of Σ is limited.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from core.space import SpaceChange

RIDGE = 1e-3  # ε of Σ + εI: copies of unit vectors differ by much more than this, rounding errors are much smaller


@dataclass(frozen=True)
class Statistics:
    """Mean and covariance of each class's copies; Σ = factorᵀ · factor, rows beyond its rank are zero."""

    mean: Tensor  # (K, M)
    factor: Tensor  # (K, B, M)

    def to(self, device: torch.device) -> "Statistics":
        return Statistics(self.mean.to(device), self.factor.to(device))

    def of(self, rows: Tensor) -> "Statistics":
        """Of some of the classes."""
        return Statistics(self.mean[rows], self.factor[rows])

    def with_rows(self, rows: Tensor, others: "Statistics") -> "Statistics":
        """With those of some classes replaced."""
        return Statistics(self.mean.index_copy(0, rows, others.mean), self.factor.index_copy(0, rows, others.factor))

    def moved(self, change: SpaceChange) -> "Statistics":
        """The same statistics in another space."""
        return Statistics(change.points(self.mean), change.directions(self.factor))


def statistics_of(copies: Tensor, held: Tensor) -> Statistics:
    """μ and Σ of the copies that each class holds, newest last; the rows before them are padding."""
    weight = _is_held(copies, held) / held[:, None]  # (K, B)
    mean = torch.einsum("kb,kbm->km", weight, copies)
    factor = (copies - mean[:, None]).mul_(weight.sqrt()[:, :, None])
    return Statistics(mean, factor)


def smoothed_statistics_of(copies: Tensor, held: Tensor, bandwidth: float = 1.0) -> Statistics:
    """(μ̃, Σ̃): the history of (μ, Σ), weighted by a normalised symmetric Gaussian kernel over copy age.

    The statistics of age a are those of the copies that existed a steps ago. All of them are in the span of the copies
    held now, so Σ̃ = Cᵀ·A·C with a B×B matrix A, and A^½·C is an exact factor of B rows.
    """
    size = copies.shape[1]
    present = _is_held(copies, held)  # (K, B)
    age = torch.arange(size - 1, -1, -1, device=copies.device, dtype=copies.dtype)  # newest is last
    kernel = torch.exp(-0.5 * (age / bandwidth) ** 2) * present
    kernel = kernel / kernel.sum(1, keepdim=True)  # (K, B): weight of the statistics of each age
    prefix = torch.tril(torch.ones(size, size, device=copies.device, dtype=copies.dtype))
    member = prefix[None] * present[:, None, :]  # (K, age, copy): which copies existed at that age
    share = member / member.sum(2, keepdim=True).clamp_min(1)
    mean = torch.einsum("ka,kab,kbm->km", kernel, share, copies)
    spread = torch.diag_embed(share) - share[:, :, :, None] * share[:, :, None, :]  # covariance as weights of copies
    mixed = torch.einsum("ka,kabc->kbc", kernel, spread)  # A
    values, vectors = torch.linalg.eigh(mixed)
    root = values.clamp_min(0).sqrt()[:, :, None] * vectors.transpose(1, 2)  # A = rootᵀ·root
    anchored = copies - mean[:, None]  # rows of A sum to zero, so the shift leaves Σ̃ as it is, with less rounding
    return Statistics(mean, root @ (anchored * present[:, :, None]))


def follow(running: Statistics, fresh: Statistics, momentum: float = 0.9) -> Statistics:
    """Exponential moving average of both statistics; of Σ the largest directions are kept, as many as before."""
    mean = momentum * running.mean + (1 - momentum) * fresh.mean
    stacked = torch.cat([running.factor, fresh.factor], dim=1)  # (K, 2B, M)
    own, other = stacked.split([running.factor.shape[1], fresh.factor.shape[1]], dim=1)
    own *= math.sqrt(momentum)
    other *= math.sqrt(1 - momentum)
    _, vectors = _spectrum(stacked)
    largest = vectors[:, :, -running.factor.shape[1] :]
    return Statistics(mean, largest.transpose(1, 2) @ stacked)


class Recolouring:
    """c̃ = Σ̃^½ · Σ^-½ · (c − μ) + μ̃, each Σ with εI added. The paper prints Σ̃ twice, which would be the identity.

    Prepared once for given statistics and applied in every step, differentiably.
    """

    def __init__(self, statistics: Statistics, smoothed: Statistics, ridge: float = RIDGE) -> None:
        self.from_mean, self.to_mean = statistics.mean, smoothed.mean
        self.ridge = ridge
        self.whiten = _Power(statistics.factor, -0.5, ridge)
        self.colour = _Power(smoothed.factor, 0.5, ridge)

    def follow(self, statistics: Statistics) -> None:
        """Replace (μ, Σ); the smoothed pair stays, with what was computed from it."""
        self.from_mean = statistics.mean
        del self.whiten  # before the next one is made: with many classes each is large
        self.whiten = _Power(statistics.factor, -0.5, self.ridge)

    def __call__(self, prototypes: Tensor) -> Tensor:
        return self.colour(self.whiten(prototypes - self.from_mean)) + self.to_mean


class _Power:
    """(FᵀF + εI)^p · v exactly, through the B×B Gram matrix: O(B²M) where the dense power costs O(M³).

    With F = V·s·Uᵀ it is ε^p·v + U·((s² + ε)^p − ε^p)·Uᵀ·v.
    """

    def __init__(self, factor: Tensor, exponent: float, ridge: float) -> None:
        values, directions = _spectrum(factor)  # s², V
        present = values > 1e-9  # no correction along directions without variance
        inverse = torch.where(present, values, 1.0).rsqrt() * present
        self.basis = (directions * inverse[:, None]).transpose(1, 2) @ factor  # Uᵀ (K, B, M)
        self.plain = ridge**exponent
        self.gain = (values.clamp_min(0) + ridge) ** exponent - self.plain  # (K, B)

    def __call__(self, vectors: Tensor) -> Tensor:
        along = torch.einsum("kbm,km->kb", self.basis, vectors)
        corrected: Tensor = self.plain * vectors + torch.einsum("kb,kbm->km", self.gain * along, self.basis)
        return corrected


def _spectrum(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (K, B) and eigenvectors (K, B, B) of each F·Fᵀ, ascending.

    In double precision: copies that do not move have a Σ of rounding errors only, which decays with the momentum until
    the single-precision solver returns NaN for it.
    """
    values, vectors = torch.linalg.eigh((factor @ factor.transpose(1, 2)).double())
    return values.to(factor.dtype), vectors.to(factor.dtype)


def _is_held(copies: Tensor, held: Tensor) -> Tensor:
    size = copies.shape[1]
    present = torch.arange(size, device=copies.device) >= size - held[:, None]
    return present.to(copies.dtype)  # (K, B)
