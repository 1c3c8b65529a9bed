"""Metrics written out by hand, and the whitening against dense linear algebra."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from core.scatter import fit_space
from core.space import METRICS, Metric, Space, SpaceChange, Whitening, class_means, euclidean, power_normalised

DIM = 6
LABELS = torch.tensor([60] * 80 + [7] * 50 + [1000] * 70)  # uneven, and not numbered from zero


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features_of(labels: Tensor, views: int = 2, seed: int = 0) -> Tensor:
    """Features that are never negative, around a centre for each class, (n, views, M)."""
    classes, members = labels.unique(return_inverse=True)
    centres = 1 + 3 * torch.rand(len(classes), 1, DIM, generator=seeded(seed))
    noise = torch.randn(len(labels), views, DIM, generator=seeded(seed + 1)) @ (
        0.3 * torch.randn(DIM, DIM, generator=seeded(seed + 2))
    )
    return (centres[members] + noise).clamp_min(0)


def fitted(metric: Metric = "whitened", shrink: float = 1.0) -> Space:
    return fit_space(metric, features_of(LABELS), LABELS, shrink=shrink)


def every_space() -> list[Space]:
    return [*(Space(metric) for metric in METRICS), fitted()]


def within_class_covariance(vectors: Tensor, labels: Tensor) -> np.ndarray:
    """Pooled over classes, one outer product at a time; vectors (n, views, M)."""
    total, count = np.zeros((vectors.shape[-1], vectors.shape[-1])), 0
    for label in labels.unique().tolist():
        own = vectors[labels == label].reshape(-1, vectors.shape[-1]).double().numpy()
        for vector in own:
            total += np.outer(vector - own.mean(0), vector - own.mean(0))
        count += len(own)
    return total / (count - len(labels.unique()))


def powered_by_hand(vector: list[float]) -> list[float]:
    roots = [math.copysign(math.sqrt(max(abs(number), 1e-8)), number) for number in vector]
    return [root / math.hypot(*roots) for root in roots]


def cosine_distance(first: list[float], second: list[float]) -> float:
    dot = sum(a * b for a, b in zip(first, second, strict=True))
    return 1 - dot / (math.hypot(*first) * math.hypot(*second))


def some_vectors(count: int, seed: int) -> Tensor:
    return torch.randn(count, DIM, generator=seeded(seed))


# Distances


def test_euclidean_distances_are_those_of_the_features() -> None:
    """Features are embeddings as they are, and distance is the plain one."""
    queries, targets, space = some_vectors(4, 0), some_vectors(3, 1), Space("euclidean")

    distances = space.distances(space.embed(queries), space.embed(targets))

    expected = [[math.dist(query, target) for target in targets.tolist()] for query in queries.tolist()]
    assert expected == [pytest.approx(row, abs=1e-5) for row in distances.tolist()]


def test_cosine_distances_look_at_directions() -> None:
    """One minus the cosine between the features."""
    queries, targets, space = some_vectors(4, 0), some_vectors(3, 1), Space("cosine")

    distances = space.distances(space.embed(queries), space.embed(targets))

    expected = [[cosine_distance(query, target) for target in targets.tolist()] for query in queries.tolist()]
    assert expected == [pytest.approx(row, abs=1e-5) for row in distances.tolist()]


def test_power_cosine_takes_roots_before_directions() -> None:
    """One minus the cosine between square roots, each with the sign of its feature."""
    queries, targets, space = some_vectors(4, 0), some_vectors(3, 1), Space("power-cosine")

    distances = space.distances(space.embed(queries), space.embed(targets))

    roots = [powered_by_hand(target) for target in targets.tolist()]
    expected = [[cosine_distance(powered_by_hand(query), root) for root in roots] for query in queries.tolist()]
    assert expected == [pytest.approx(row, abs=1e-5) for row in distances.tolist()]


def test_roots_of_features_that_are_never_negative_are_what_they_were() -> None:
    """Bit for bit, with their slopes: versions stored before features could be negative answer as before."""
    features = some_vectors(50, 0).abs()
    features[:, ::3] = 0
    features[:, 1::3] *= 1e-9

    now, before = features.clone().requires_grad_(), features.clone().requires_grad_()
    found, expected = power_normalised(now), F.normalize(before.clamp_min(1e-8).sqrt(), dim=-1)
    weights = some_vectors(50, 1)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()

    assert torch.equal(found, expected)
    assert torch.equal(now.grad, before.grad)


def test_opposite_features_have_opposite_embeddings() -> None:
    """The sign of a feature says as much as its size."""
    features = some_vectors(4, 0)

    assert (features < 0).any()
    assert torch.equal(power_normalised(-features), -power_normalised(features))


def test_whitened_distances_are_cosines_after_the_projection() -> None:
    """Roots at unit length, less the origin, times the projection; then one minus the cosine."""
    queries, targets = some_vectors(4, 0), some_vectors(3, 1)
    origin, projection = some_vectors(1, 2)[0], some_vectors(DIM, 3)
    space = Space("whitened", Whitening(origin, projection))

    distances = space.distances(space.embed(queries), space.embed(targets))

    def projected(vector: list[float]) -> list[float]:
        centred = [a - b for a, b in zip(powered_by_hand(vector), origin.tolist(), strict=True)]
        return [sum(centred[i] * projection[i, j].item() for i in range(DIM)) for j in range(DIM)]

    ends = [projected(target) for target in targets.tolist()]
    expected = [[cosine_distance(projected(query), end) for end in ends] for query in queries.tolist()]
    assert expected == [pytest.approx(row, abs=1e-5) for row in distances.tolist()]


def test_without_a_base_session_whitened_is_power_cosine() -> None:
    """There is nothing to fit on, so the two agree to the last bit."""
    queries, targets = some_vectors(4, 0), some_vectors(3, 1)
    whitened, power = Space("whitened"), Space("power-cosine")

    distances = whitened.distances(whitened.embed(queries), whitened.embed(targets))

    assert torch.equal(power.distances(power.embed(queries), power.embed(targets)), distances)


@pytest.mark.parametrize("metric", ["cosine", "power-cosine", "whitened"])
def test_embeddings_have_unit_length_where_directions_count(metric: Metric) -> None:
    """So that every image has the same say in the mean that is its class's prototype."""
    embeddings = Space(metric).embed(9 * some_vectors(4, 0))

    assert torch.allclose(torch.ones(4), embeddings.norm(dim=1), atol=1e-6)


@pytest.mark.parametrize("metric", ["cosine", "power-cosine"])
def test_the_length_of_a_feature_vector_does_not_matter(metric: Metric) -> None:
    """A brighter image of the same thing is as near."""
    queries, targets, space = some_vectors(4, 0).abs(), some_vectors(3, 1).abs(), Space(metric)

    distances = space.distances(space.embed(9 * queries), space.embed(targets))

    assert torch.allclose(space.distances(space.embed(queries), space.embed(targets)), distances, atol=1e-5)


@pytest.mark.parametrize("space", every_space())
def test_comparable_vectors_rank_by_plain_distance_as_the_metric_does(space: Space) -> None:
    """So one Euclidean loss and one matrix product serve every metric, for prototypes of any length too."""
    queries = space.embed(features_of(LABELS[::10])[:, 0])
    prototypes = space.embed(features_of(LABELS[::20], seed=5)[:, 0]) * torch.linspace(0.3, 2, 10)[:, None]

    ranks = space.distances(queries, prototypes).argsort(1)

    plain = torch.cdist(space.comparable(queries), space.comparable(prototypes))
    assert torch.equal(plain.argsort(1), ranks)
    assert torch.equal(
        space.distances(queries, prototypes).argmin(1),
        euclidean(space.comparable(queries), space.comparable(prototypes)).argmin(1),
    )


@pytest.mark.parametrize("space", every_space())
def test_embedding_does_not_depend_on_the_batch(space: Space) -> None:
    """Any leading shape: shots and views at once, or one by one."""
    features = features_of(LABELS[::20], views=3)

    together = space.embed(features)

    single = torch.stack([torch.stack([space.embed(view) for view in shot]) for shot in features])
    assert together.shape == features.shape
    assert torch.allclose(single, together, atol=1e-6)


@pytest.mark.parametrize("space", every_space())
@pytest.mark.parametrize("value", [0.0, -1.0, 1e-20])
def test_features_without_a_signal_give_numbers_and_slopes(space: Space, value: float) -> None:
    """A dead image, or a prototype it coincides with, makes neither distances nor gradients NaN or infinite."""
    dead = torch.full((2, DIM), value, requires_grad=True)
    targets = torch.cat([space.embed(features_of(LABELS[:3])[:, 0]), space.embed(dead.detach())[:1]])

    distances = space.distances(space.embed(dead), targets)
    (slope,) = torch.autograd.grad(distances.sum(), dead)

    assert torch.isfinite(distances).all()
    assert torch.isfinite(slope).all()


def test_coinciding_points_have_next_to_no_distance_and_a_finite_slope() -> None:
    """The root's slope at zero is infinite; the floor keeps it out."""
    points = torch.nn.functional.normalize(some_vectors(5, 0), dim=1).requires_grad_()

    distances = euclidean(points, points.detach()).diagonal()
    (slope,) = torch.autograd.grad(distances.sum(), points)

    assert (distances < 1e-3).all()
    assert torch.isfinite(slope).all()
    assert slope.abs().max() < 10


# Fitting


@pytest.mark.parametrize("shrink", [0.1, 1.0])
def test_the_projection_inverts_the_shrunk_covariance(shrink: float) -> None:
    """P·(Σ + shrink·t·I)·P = t·I with t the mean variance within classes, Σ over every image and view."""
    space = fitted(shrink=shrink)

    assert space.whitening is not None
    projection = space.whitening.projection.double().numpy()
    within = within_class_covariance(power_normalised(features_of(LABELS)), LABELS)
    typical = np.trace(within) / DIM
    product = projection @ (within + shrink * typical * np.eye(DIM)) @ projection
    assert np.allclose(typical * np.eye(DIM), product, atol=1e-3 * typical)
    assert np.allclose(projection, projection.T, atol=1e-5)


def test_whitened_classes_spread_alike_in_every_direction() -> None:
    """With many images and hardly any shrinking the covariance within classes is a multiple of the identity."""
    plain = within_class_covariance(power_normalised(features_of(LABELS)), LABELS)

    whitened = within_class_covariance(fitted(shrink=1e-5).embed(features_of(LABELS)), LABELS)

    typical = np.trace(whitened) / DIM
    assert np.linalg.cond(plain) > 10
    assert np.allclose(np.eye(DIM), whitened / typical, atol=0.02)
    assert typical == pytest.approx(np.trace(plain) / DIM, rel=0.02)  # the size of embeddings stays


def test_the_origin_is_the_mean_of_the_class_means() -> None:
    """Every class counts once, whatever its number of images."""
    space = fitted()

    assert space.whitening is not None
    powered = power_normalised(features_of(LABELS))
    means = [powered[label == LABELS].reshape(-1, DIM).mean(0) for label in (7, 60, 1000)]
    assert torch.allclose(torch.stack(means).mean(0), space.whitening.origin, atol=1e-6)


def test_fewer_images_than_dimensions_can_be_whitened() -> None:
    """Shrinking keeps directions without a known variance finite and no larger than they were."""
    labels = torch.tensor([5, 9, 9])

    space = fit_space("whitened", features_of(labels, views=1), labels)

    assert space.whitening is not None
    largest = np.linalg.eigvalsh(space.whitening.projection.double().numpy()).max()
    assert largest == pytest.approx(1.0, abs=1e-4)


def test_whitening_brings_noisy_classes_apart() -> None:
    """A direction in which images of one class differ counts for less than one in which classes differ."""
    labels = torch.tensor([3, 8]).repeat_interleave(200)
    features = 4 + 0.1 * torch.randn(400, 1, DIM, generator=seeded())
    features[:, :, :2] += 3 * torch.rand(400, 1, 1, generator=seeded(1)) - 1.5  # what varies, whatever the class
    features[labels == 8, :, 1] += 0.6  # what tells the classes apart

    spaces = {metric: fit_space(metric, features, labels) for metric in ("power-cosine", "whitened")}

    right = {}
    for metric, space in spaces.items():
        embeddings = space.embed(features)
        means, members = class_means(embeddings, labels)
        nearest = space.distances(embeddings[:, 0], means).argmin(1)
        right[metric] = float((nearest == members).float().mean())
    assert right["whitened"] > 0.9
    assert right["power-cosine"] < 0.7


def test_classes_without_any_spread_can_be_whitened() -> None:
    """One image a class in one view has no covariance within classes; each is still nearest to itself."""
    labels = torch.tensor([60, 7, 1000])
    features = features_of(labels, views=1)

    space = fit_space("whitened", features, labels)

    embeddings = space.embed(features)[:, 0]
    assert torch.isfinite(embeddings).all()
    assert space.distances(embeddings, embeddings).argmin(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "power-cosine"])
def test_other_metrics_need_no_fitting(metric: Metric) -> None:
    """They come out as they are."""
    space = fitted(metric)

    assert (space.metric, space.whitening) == (metric, None)


def test_one_class_alone_is_not_whitened() -> None:
    """What tells classes apart cannot be learned from one."""
    labels = torch.full((20,), 7)

    space = fit_space("whitened", features_of(labels), labels)

    assert (space.metric, space.whitening) == ("whitened", None)


def test_class_means_are_over_images_and_views_in_ascending_order() -> None:
    """Uneven classes with any numbers."""
    labels = torch.tensor([60, 7, 60, 1000, 60])
    vectors = some_vectors(10, 0).reshape(5, 2, DIM)

    means, members = class_means(vectors, labels)

    for row, label in enumerate((7, 60, 1000)):
        own = [view for shot, of in zip(vectors, labels.tolist(), strict=True) if of == label for view in shot]
        assert torch.allclose(sum(own) / len(own), means[row], atol=1e-6)
    assert members.tolist() == [1, 0, 1, 2, 1]


def test_moving_a_space_moves_its_whitening() -> None:
    """A space on its own device stays equal to itself."""
    space = fitted()

    moved = space.to(torch.device("cpu"))

    assert moved.metric == "whitened"
    assert moved.whitening is not None
    assert torch.equal(space.embed(features_of(LABELS)), moved.embed(features_of(LABELS)))
    assert Space("cosine").to(torch.device("cpu")).metric == "cosine"


# Signs


def test_power_normalisation_keeps_signs() -> None:
    """Opposite features are opposite, and a feature and its negative are not the same."""
    features = some_vectors(5, 0)

    assert torch.allclose(-power_normalised(features), power_normalised(-features), atol=1e-6)
    assert torch.equal(features.sign(), power_normalised(features).sign())


# From one space to another


def whitened_otherwise() -> Space:
    labels = torch.tensor([1, 2, 3]).repeat_interleave(4)
    return fit_space("whitened", features_of(labels, seed=7), labels, shrink=0.3)


SPACES = {"unwhitened": Space("whitened"), "whitened": fitted(), "whitened otherwise": whitened_otherwise()}


@pytest.mark.parametrize("old", SPACES)
@pytest.mark.parametrize("new", SPACES)
def test_a_change_of_space_equals_embedding_anew(old: str, new: str) -> None:
    """Embeddings of any shape and the means of them, with no feature at hand."""
    features = features_of(LABELS, seed=3)
    start, end = SPACES[old].embed(features), SPACES[new].embed(features)
    change = SpaceChange(SPACES[old], SPACES[new])

    assert torch.allclose(end, change.points(start), atol=1e-4)
    assert torch.allclose(class_means(end, LABELS)[0], change.points(class_means(start, LABELS)[0]), atol=1e-4)
    assert torch.allclose(end[0] - end[1], change.directions(start[0] - start[1]), atol=1e-4)


@pytest.mark.parametrize("old", SPACES)
@pytest.mark.parametrize("new", SPACES)
def test_a_change_and_its_return_is_no_change(old: str, new: str) -> None:
    """Nothing is lost on the way."""
    embeddings = SPACES[old].embed(features_of(LABELS[::10]))

    there = SpaceChange(SPACES[old], SPACES[new]).points(embeddings)

    assert torch.allclose(embeddings, SpaceChange(SPACES[new], SPACES[old]).points(there), atol=1e-4)


@pytest.mark.parametrize("metric", METRICS)
def test_the_same_space_changes_no_bit(metric: Metric) -> None:
    """Metrics that need no fitting never move."""
    embeddings = some_vectors(5, 0)
    space = fitted(metric)

    assert torch.equal(embeddings, SpaceChange(space, space).points(embeddings))
    assert torch.equal(embeddings, SpaceChange(Space(metric), Space(metric)).directions(embeddings))
