"""Calibration through a few rows against the dense formulas of the paper, which form every M×M matrix."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from core.calibration import RIDGE, Recolouring, Statistics, follow, smoothed_statistics_of, statistics_of

DIM = 40
COPIES = 5  # B
EVERY_COUNT = torch.arange(1, COPIES + 1)  # one class for each number of copies a class can hold
PADDING = 100.0  # far from any copy: it shows wherever padding leaks into a result

Matrix = np.ndarray


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def wandering_copies(held: Tensor = EVERY_COUNT, step: float = 0.05, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unit prototypes that wander by a step from copy to copy, padded at the front, (K, B, M)."""
    start = torch.nn.functional.normalize(torch.randn(len(held), 1, DIM, generator=seeded()), dim=2)
    walk = torch.cumsum(step * torch.randn(len(held), COPIES, DIM, generator=seeded(1)), dim=1)
    copies = (start + walk).to(dtype)
    for row, count in enumerate(held.tolist()):
        copies[row, : COPIES - count] = PADDING
    return copies


def held_copies(copies: Tensor, held: Tensor, row: int) -> Matrix:
    """The copies that a class really has, oldest first."""
    return copies[row, COPIES - int(held[row]) :].double().numpy()


def covariance(copies: Matrix) -> Matrix:
    """Population covariance, one outer product at a time."""
    mean = copies.mean(0)
    return np.asarray(sum(np.outer(copy - mean, copy - mean) for copy in copies) / len(copies))


def smoothed_by_hand(copies: Matrix, bandwidth: float) -> tuple[Matrix, Matrix]:
    """μ̃ and Σ̃: what the statistics were at every age, averaged with Gaussian weights of that age."""
    mean, cov, total = np.zeros(DIM), np.zeros((DIM, DIM)), 0.0
    for age in range(len(copies)):
        existed = copies[: len(copies) - age]
        weight = math.exp(-(age**2) / (2 * bandwidth**2))
        mean, cov, total = mean + weight * existed.mean(0), cov + weight * covariance(existed), total + weight
    return mean / total, cov / total


def power(matrix: Matrix, exponent: float) -> Matrix:
    """A symmetric matrix to a power, through its dense eigendecomposition."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors @ np.diag(values**exponent) @ vectors.T)


def sigma(statistics: Statistics, row: int) -> Matrix:
    factor = statistics.factor[row].double().numpy()
    return np.asarray(factor.T @ factor)


def low_rank(rank: int, seed: int, rows: int = COPIES) -> Statistics:
    """Random statistics of two classes whose Σ has this rank, in a factor of `rows` rows."""
    factor = torch.zeros(2, rows, DIM, dtype=torch.float64)
    factor[:, :rank] = torch.randn(2, rank, DIM, generator=seeded(seed), dtype=torch.float64)
    return Statistics(torch.randn(2, DIM, generator=seeded(seed + 100), dtype=torch.float64), factor)


# Statistics of the copies


def test_statistics_are_mean_and_covariance_of_the_copies_held() -> None:
    """For every number of copies, and whatever stands in the padding."""
    copies = wandering_copies()

    statistics = statistics_of(copies, EVERY_COUNT)

    for row in range(COPIES):
        own = held_copies(copies, EVERY_COUNT, row)
        assert np.allclose(own.mean(0), statistics.mean[row], atol=1e-6)
        assert np.allclose(covariance(own), sigma(statistics, row), atol=1e-6)


def test_identical_copies_have_no_covariance() -> None:
    """A prototype that never moved has itself for a mean and nothing for Σ and Σ̃."""
    copies = torch.randn(3, 1, DIM, generator=seeded()).repeat(1, COPIES, 1)
    held = torch.tensor([1, 3, 5])

    plain, smoothed = statistics_of(copies, held), smoothed_statistics_of(copies, held)

    for statistics in (plain, smoothed):
        assert torch.allclose(copies[:, 0], statistics.mean, atol=1e-6)
        assert statistics.factor.abs().max() < 1e-6


@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 3.0])
def test_smoothed_statistics_are_the_kernel_average_of_the_history(bandwidth: float) -> None:
    """μ̃ and Σ̃ average the statistics of each age densely computed, younger ages weighing more."""
    copies = wandering_copies()

    smoothed = smoothed_statistics_of(copies, EVERY_COUNT, bandwidth)

    for row in range(COPIES):
        mean, cov = smoothed_by_hand(held_copies(copies, EVERY_COUNT, row), bandwidth)
        assert np.allclose(mean, smoothed.mean[row], atol=1e-6)
        assert np.allclose(cov, sigma(smoothed, row), atol=1e-6)


def test_smoothing_is_not_the_statistics_themselves() -> None:
    """With a history the smoothed statistics lag behind the newest."""
    copies = wandering_copies()

    plain, smoothed = statistics_of(copies, EVERY_COUNT), smoothed_statistics_of(copies, EVERY_COUNT)

    assert torch.equal(plain.mean[0], smoothed.mean[0])  # one copy
    assert ((plain.mean - smoothed.mean)[1:].norm(dim=1) > 0.01).all()


# Whitening and re-colouring


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
@pytest.mark.parametrize("ridge", [RIDGE, 0.1])
def test_recolouring_equals_the_dense_formula(dtype: torch.dtype, tolerance: float, ridge: float) -> None:
    """c̃ = (Σ̃+εI)^½ · (Σ+εI)^-½ · (c − μ) + μ̃ with full matrices, for every number of copies."""
    copies = wandering_copies(dtype=dtype)
    prototypes = copies[:, -1] + 0.05 * torch.randn(COPIES, DIM, generator=seeded(2)).to(dtype)

    recoloured = Recolouring(statistics_of(copies, EVERY_COUNT), smoothed_statistics_of(copies, EVERY_COUNT), ridge)(
        prototypes
    )

    for row in range(COPIES):
        own = held_copies(copies, EVERY_COUNT, row)
        mean, cov = smoothed_by_hand(own, 1.0)
        whitener = power(covariance(own) + ridge * np.eye(DIM), -0.5)
        colourer = power(cov + ridge * np.eye(DIM), 0.5)
        expected = colourer @ whitener @ (prototypes[row].double().numpy() - own.mean(0)) + mean
        assert np.allclose(expected, recoloured[row], atol=tolerance)


def test_recolouring_changes_a_class_that_has_wandered() -> None:
    """Two copies suffice for calibration to be more than the identity."""
    copies = wandering_copies()
    recolouring = Recolouring(statistics_of(copies, EVERY_COUNT), smoothed_statistics_of(copies, EVERY_COUNT))

    recoloured = recolouring(copies[:, -1])

    assert ((recoloured - copies[:, -1])[1:].norm(dim=1) > 0.01).all()


def test_with_one_copy_recolouring_is_the_identity() -> None:
    """A class without a history is left where it is, wherever it now stands."""
    held = torch.ones(3, dtype=torch.long)
    copies = wandering_copies(held)
    prototypes = torch.randn(3, DIM, generator=seeded(2))

    recoloured = Recolouring(statistics_of(copies, held), smoothed_statistics_of(copies, held))(prototypes)

    assert torch.allclose(prototypes, recoloured, atol=1e-5)


def test_recolouring_takes_the_one_covariance_to_the_other() -> None:
    """Points spread as Σ + εI come out spread as Σ̃ + εI: the printed formula would leave them alone."""
    statistics, smoothed = low_rank(3, seed=0), low_rank(4, seed=1)
    spread = power(sigma(statistics, 0) + RIDGE * np.eye(DIM), 0.5)  # its columns c − μ have Σ + εI for a scatter
    recolouring = Recolouring(statistics, smoothed)

    columns = [
        recolouring(statistics.mean + torch.from_numpy(np.stack([column, column]))) - smoothed.mean
        for column in spread.T
    ]

    scatter = sum(np.outer(column[0], column[0]) for column in columns)
    assert np.allclose(sigma(smoothed, 0) + RIDGE * np.eye(DIM), scatter, atol=1e-8)


def test_recolouring_is_differentiable() -> None:
    """Its slope is the dense matrix Σ̃^½·Σ^-½, so that gradients reach the prototypes."""
    statistics, smoothed = low_rank(3, seed=0), low_rank(4, seed=1)
    prototypes = torch.randn(2, DIM, generator=seeded(2), dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, DIM, generator=seeded(3), dtype=torch.float64)

    (slope,) = torch.autograd.grad((Recolouring(statistics, smoothed)(prototypes) * upstream).sum(), prototypes)

    for row in range(2):
        colourer = power(sigma(smoothed, row) + RIDGE * np.eye(DIM), 0.5)
        whitener = power(sigma(statistics, row) + RIDGE * np.eye(DIM), -0.5)
        assert np.allclose((colourer @ whitener).T @ upstream[row].numpy(), slope[row], atol=1e-8)


# The moving average


def test_following_is_the_dense_moving_average_while_the_rank_allows() -> None:
    """Two covariances of together at most B ranks are averaged exactly."""
    running, fresh = low_rank(2, seed=0), low_rank(3, seed=1)

    followed = follow(running, fresh, momentum=0.7)

    for row in range(2):
        assert np.allclose(0.7 * running.mean[row] + 0.3 * fresh.mean[row], followed.mean[row])
        assert np.allclose(0.7 * sigma(running, row) + 0.3 * sigma(fresh, row), sigma(followed, row), atol=1e-9)


def test_following_keeps_the_best_approximation_of_the_rank_it_has() -> None:
    """Beyond B ranks the largest B directions of the dense average remain, and no others."""
    running, fresh = low_rank(5, seed=0), low_rank(5, seed=1)

    followed = follow(running, fresh, momentum=0.6)

    assert running.factor.shape == followed.factor.shape
    for row in range(2):
        values, vectors = np.linalg.eigh(0.6 * sigma(running, row) + 0.4 * sigma(fresh, row))
        best = sum(values[-n] * np.outer(vectors[:, -n], vectors[:, -n]) for n in range(1, COPIES + 1))
        assert np.allclose(best, sigma(followed, row), atol=1e-8)


def test_following_has_a_momentum_of_nine_tenths() -> None:
    """Nine parts of what was, one part of what is."""
    running, fresh = low_rank(2, seed=0), low_rank(2, seed=1)

    followed = follow(running, fresh)

    assert np.allclose(0.9 * running.mean + 0.1 * fresh.mean, followed.mean)
    assert np.allclose(0.9 * sigma(running, 0) + 0.1 * sigma(fresh, 0), sigma(followed, 0), atol=1e-9)


def test_following_leaves_what_it_was_given() -> None:
    """The running statistics belong to a bank that others read."""
    running, fresh = low_rank(5, seed=0), low_rank(5, seed=1)
    before = [tensor.clone() for tensor in (running.mean, running.factor, fresh.mean, fresh.factor)]

    follow(running, fresh)

    after = (running.mean, running.factor, fresh.mean, fresh.factor)
    assert all(torch.equal(then, now) for then, now in zip(before, after, strict=True))


def test_statistics_stay_numbers_when_copies_never_move() -> None:
    """A Σ of mere rounding decays from session to session; the single-precision solver gives up on such matrices."""
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.nn.functional.normalize(torch.randn(300, 1, 1280, generator=generator), dim=-1)
    copies, held = prototypes.repeat(1, 5, 1), torch.full((300,), 5)
    running = statistics_of(copies, held)

    for _ in range(40):
        running = follow(running, statistics_of(copies, held))

    assert torch.isfinite(running.factor).all()
    moved = Recolouring(running, smoothed_statistics_of(copies, held))(prototypes[:, 0])
    assert torch.allclose(prototypes[:, 0], moved, atol=1e-4)


def test_a_recolouring_that_follows_equals_one_made_anew() -> None:
    """Only the statistics it starts from change."""
    generator = torch.Generator().manual_seed(1)
    first, second, third = (torch.randn(4, 5, 16, generator=generator) for _ in range(3))
    held = torch.full((4,), 5)
    smoothed = smoothed_statistics_of(third, held)
    recolouring = Recolouring(statistics_of(first, held), smoothed)

    recolouring.follow(statistics_of(second, held))

    anew = Recolouring(statistics_of(second, held), smoothed)
    assert torch.equal(anew(third[:, 0]), recolouring(third[:, 0]))
