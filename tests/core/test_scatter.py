"""Scatter of classes: what is pooled, shortened or taken apart describes the same images as dense linear algebra."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from core.scatter import ROWS, Scatter, fit_space, pooled, scatter_of
from core.space import power_normalised, whitened

DIM = 24


def features_of(labels: Tensor, views: int = 3, seed: int = 0, dim: int = DIM) -> Tensor:
    """Features with signs, some directions much larger than others, around a centre for each class, (n, views, M)."""
    generator = torch.Generator().manual_seed(seed)
    classes, members = labels.unique(return_inverse=True)
    centres = torch.randn(len(classes), 1, dim, generator=generator)
    noise = torch.randn(len(labels), views, dim, generator=generator) @ torch.randn(dim, dim, generator=generator)
    return centres[members] + 0.2 * noise * torch.logspace(0, -2, dim)


def labels_of(*counts: int) -> Tensor:
    """Classes with these numbers of images, their ids far apart and not in order."""
    ids = [(7 * place) % 101 + 1000 * (place % 3) for place in range(len(counts))]
    return torch.tensor(ids).repeat_interleave(torch.tensor(counts))


def dense(features: Tensor, labels: Tensor) -> np.ndarray:
    """Sum of outer products of the deviations from class means, one at a time."""
    powered = power_normalised(features).double().numpy()
    total = np.zeros((features.shape[-1], features.shape[-1]))
    for label in labels.unique().tolist():
        own = powered[(labels == label).numpy()].reshape(-1, features.shape[-1])
        for vector in own - own.mean(0):
            total += np.outer(vector, vector)
    return total


def product(scatter: Scatter) -> np.ndarray:
    factor = scatter.factor.double().numpy()
    return factor.T @ factor


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Relative, in the Frobenius norm."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@cache
def many() -> tuple[Tensor, Tensor]:
    labels = labels_of(*([5] * 12 + [2] * 8 + [1] * 4))
    return features_of(labels), labels


def test_a_scatter_is_the_sum_of_squared_deviations() -> None:
    """Over images and views, around the mean of each class; freedom is what is left after the means."""
    features, labels = many()

    scatter = scatter_of(features, labels)

    assert apart(product(scatter), dense(features, labels)) < 1e-4
    assert scatter.freedom == 3 * len(labels) - 24


@pytest.mark.parametrize("counts", [[5], [1, 1], [2, 3], [5] * 40])
def test_the_factor_has_no_more_rows_than_dimensions(counts: list[int]) -> None:
    """However many images there are."""
    labels = labels_of(*counts)

    scatter = scatter_of(features_of(labels), labels)

    assert len(scatter.factor) <= DIM
    assert scatter.dim == DIM
    assert apart(product(scatter), dense(features_of(labels), labels)) < 1e-4


@pytest.mark.parametrize("at_once", [1, 3, 24])
def test_scatters_of_classes_add_up_to_that_of_all_images(at_once: int) -> None:
    """Classes one by one, in threes, or all together: no image is needed again."""
    features, labels = many()
    groups = labels.unique().split(at_once)
    parts = [torch.isin(labels, group) for group in groups]

    total = pooled([scatter_of(features[rows], labels[rows]) for rows in parts], DIM)

    everything = scatter_of(features, labels)
    assert apart(product(total), product(everything)) < 1e-4
    assert total.freedom == everything.freedom
    assert len(total.factor) <= DIM


def test_so_many_classes_that_rows_are_reduced_on_the_way_add_up_too() -> None:
    """Two hundred classes of ten rows are twenty times more than is ever held."""
    labels = torch.arange(200).repeat_interleave(5)
    features = features_of(labels, views=2)

    total = pooled((scatter_of(features[labels == label], labels[labels == label]) for label in range(200)), DIM)

    assert apart(product(total), dense(features, labels)) < 1e-4
    assert total.freedom == 2000 - 200


def test_pooling_nothing_is_nothing() -> None:
    """A learner without classes; its spectrum has no direction."""
    nothing = pooled([], DIM)

    variances, directions = nothing.spectrum
    assert (tuple(nothing.factor.shape), nothing.freedom) == ((0, DIM), 0)
    assert (tuple(variances.shape), tuple(directions.shape)) == ((0,), (DIM, 0))
    assert nothing.typical > 0


def test_pooling_leaves_what_it_was_given() -> None:
    """A class keeps its own scatter for the next time."""
    features, labels = many()
    one = scatter_of(features, labels)
    before = one.factor.clone()

    pooled([one, one, one], DIM)

    assert torch.equal(before, one.factor)


# Taken apart


@pytest.mark.parametrize("counts", [[5, 2], [5] * 30], ids=["fewer rows than dimensions", "more"])
def test_the_spectrum_is_that_of_the_dense_covariance(counts: list[int]) -> None:
    """Variances and directions by numpy, of every direction that has any variance."""
    labels = labels_of(*counts)
    features = features_of(labels)
    scatter = scatter_of(features, labels)

    variances, directions = scatter.spectrum

    expected, vectors = np.linalg.eigh(dense(features, labels) / (3 * len(labels) - len(counts)))
    rank = min(DIM, 3 * len(labels) - len(counts))
    assert len(variances) == rank
    assert np.allclose(expected[-rank:], variances.numpy(), rtol=1e-3, atol=1e-6 * expected[-1])
    assert np.allclose(np.eye(rank), (directions.T @ directions).numpy(), atol=1e-4)
    overlap = np.abs((vectors[:, -rank:] * directions.numpy()).sum(0))  # of each with its own
    assert (overlap[-3:] > 0.999).all()
    rebuilt = (directions * variances) @ directions.T
    assert apart(rebuilt.numpy(), (vectors * expected) @ vectors.T) < 1e-4


def test_the_typical_variance_is_the_mean_over_all_dimensions() -> None:
    """Those without any variance count too."""
    features, labels = many()

    expected = np.trace(dense(features, labels)) / (3 * len(labels) - 24) / DIM
    assert float(scatter_of(features, labels).typical) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("shrink", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("counts", [[3, 2], [5] * 30], ids=["fewer rows than dimensions", "more"])
def test_the_whitened_projection_is_its_dense_formula(counts: list[int], shrink: float) -> None:
    """√t · (Σ + shrink·t·I)^-½ with t the typical variance."""
    labels = labels_of(*counts)
    features = features_of(labels)

    space = whitened(scatter_of(features, labels), torch.zeros(DIM), shrink)

    covariance = dense(features, labels) / (3 * len(labels) - len(counts))
    typical = np.trace(covariance) / DIM
    values, vectors = np.linalg.eigh(covariance + shrink * typical * np.eye(DIM))
    expected = math.sqrt(typical) * (vectors * values**-0.5) @ vectors.T
    assert space.whitening is not None
    assert np.allclose(expected, space.whitening.projection.numpy(), atol=1e-4)


def test_equal_images_have_a_spectrum_of_numbers() -> None:
    """Their deviations are rounding errors; a space can be whitened by them, and stays as it is."""
    labels = torch.tensor([3, 8]).repeat_interleave(5)
    features = features_of(torch.tensor([3, 8]), views=1)[labels.unique(return_inverse=True)[1]].expand(-1, 4, -1)

    space = whitened(scatter_of(features, labels), torch.zeros(DIM), 1.0)

    assert space.whitening is not None
    assert torch.allclose(torch.eye(DIM), space.whitening.projection, atol=1e-3)


# Shortened


@pytest.mark.parametrize("rows", [1, 5, 20])
def test_a_compact_scatter_has_the_same_total_variance(rows: int) -> None:
    """The largest directions stay, scaled up alike, with the same freedom."""
    features, labels = many()
    scatter = scatter_of(features, labels)

    short = scatter.compact(rows)

    assert len(short.factor) == rows
    assert np.trace(product(short)) == pytest.approx(np.trace(product(scatter)), rel=1e-5)
    assert short.freedom == scatter.freedom
    _, vectors = np.linalg.eigh(dense(features, labels))
    largest = vectors[:, -rows:]
    inside = largest @ largest.T @ product(short)
    assert apart(inside, product(short)) < 1e-2


def test_what_is_short_enough_stays_as_it_is() -> None:
    """Five shots in nine views: bit for bit."""
    labels = torch.full((5,), 7)
    scatter = scatter_of(features_of(labels, views=9, dim=64), labels)

    assert scatter.compact() is scatter
    assert len(scatter.factor) == 45 <= ROWS


def test_a_hundred_shots_are_kept_in_few_rows_that_whiten_alike() -> None:
    """The spectrum falls off, so the directions left out hardly count."""
    labels = torch.full((100,), 7)
    scatter = scatter_of(features_of(labels, views=2, dim=80), labels)

    short = scatter.compact()

    assert len(short.factor) == ROWS
    assert apart(product(short), product(scatter)) < 0.05


# A space of a base session


def test_one_class_or_another_metric_gives_a_space_without_whitening() -> None:
    """Only `whitened` has something to fit, and only with two classes."""
    labels = torch.tensor([7, 7, 9])

    assert fit_space("cosine", features_of(labels), labels).whitening is None
    assert fit_space("whitened", features_of(labels[:2]), labels[:2]).whitening is None
    assert fit_space("whitened", features_of(labels), labels).whitening is not None
