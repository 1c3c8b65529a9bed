"""Nearest-class-mean answers: who can win, how sure, and when nobody is near enough."""

import math
import statistics
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.classifier import (
    TEMPERATURES,
    Certainty,
    Learned,
    NearestClassMean,
    calibrate,
    log_probability,
)
from core.errors import UnknownClass
from core.scatter import fit_space
from core.space import METRICS, Metric, Space
from core.unknown import ACCEPTED, DEVIATIONS, MANY, threshold_of

DIM = 6
IDS = (ClassId(61), ClassId(7), ClassId(1000), ClassId(60))  # neither from zero, nor in order, nor without gaps


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, DIM, generator=seeded(seed))


def space_of(metric: Metric) -> Space:
    return fit_space(metric, features(40, seed=9)[:, None], torch.arange(40) % 4)


def bank_in(space: Space) -> PrototypeBank:
    """Four classes whose prototypes are the embeddings of four feature vectors."""
    return PrototypeBank.empty(DIM).with_classes(IDS, space.embed(features(4, seed=1)), [5] * 4)


def classifier(metric: Metric = "cosine", certainty: Certainty | None = None) -> NearestClassMean:
    space = space_of(metric)
    return NearestClassMean(space, bank_in(space), certainty or Certainty())


def random_distances(count: int = 400, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Distances in no particular unit, and own classes that are mostly but not always the nearest."""
    distances = 0.2 + torch.rand(count, classes, generator=seeded(seed))
    own = torch.distributions.Categorical(logits=-distances / 0.15)
    torch.manual_seed(seed)
    return distances, own.sample()


def surprise(distances: Tensor, own: Tensor, temperature: float) -> float:
    """Mean −log of the truth's softmax(−d/τ), one image at a time."""
    total = 0.0
    for row, truth in zip(distances.tolist(), own.tolist(), strict=True):
        nearest = min(row)
        weights = [math.exp(-(distance - nearest) / temperature) for distance in row]
        total += (row[truth] - nearest) / temperature + math.log(sum(weights))
    return total / len(own)


# The nearest class


@pytest.mark.parametrize("metric", METRICS)
def test_a_class_is_recognised_by_its_own_prototype(metric: Metric) -> None:
    """The features that a prototype was made of are nearest to it, under the id it was taught with."""
    answers = classifier(metric).predict(features(4, seed=1))

    assert [answer.class_id for answer in answers] == list(IDS)
    assert [answer.top[0].distance for answer in answers] == pytest.approx([0] * 4, abs=1e-3)


@pytest.mark.parametrize("metric", METRICS)
def test_distances_are_those_of_the_metric(metric: Metric) -> None:
    """What the classifier prepares once changes nothing in what the space says."""
    space, queries = space_of(metric), features(10)

    distances = classifier(metric).distances(queries)

    expected = space.distances(space.embed(queries), bank_in(space).prototypes)
    assert torch.allclose(expected, distances, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_candidates_are_listed_nearest_first(metric: Metric) -> None:
    """The same classes and distances as sorting all of them by hand."""
    model, queries = classifier(metric), features(10)

    answers = model.predict(queries, top_k=3)

    for row, answer in zip(model.distances(queries).tolist(), answers, strict=True):
        expected = sorted(zip(row, IDS, strict=True))[:3]
        assert [candidate.class_id for candidate in answer.top] == [class_id for _, class_id in expected]
        assert [candidate.distance for candidate in answer.top] == pytest.approx([far for far, _ in expected])


@pytest.mark.parametrize("metric", METRICS)
def test_images_one_at_a_time_are_answered_as_in_a_batch(metric: Metric) -> None:
    """What else is asked at the same time has no say."""
    model, queries = classifier(metric), features(20)

    batch = model.predict(queries)
    single = [model.predict(query[None])[0] for query in queries]

    for one, other in zip(single, batch, strict=True):
        assert [candidate.class_id for candidate in one.top] == [candidate.class_id for candidate in other.top]
        for mine, yours in zip(one.top, other.top, strict=True):
            assert mine.distance == pytest.approx(yours.distance, abs=1e-5)
            assert mine.confidence == pytest.approx(yours.confidence, abs=1e-4)
    assert model.nearest(queries) == [model.nearest(query[None])[0] for query in queries]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_class_that_was_never_taught_cannot_win(metric: Metric) -> None:
    """Not for images far from, or opposite to, everything: a row of zeros for ids in between would win there."""
    space = Space(metric)
    bank = PrototypeBank.empty(DIM).with_classes(IDS, 5 + features(4, seed=1), [5] * 4)
    model = NearestClassMean(space, bank, Certainty())
    queries = torch.cat([-bank.prototypes, torch.zeros(1, DIM), torch.eye(DIM)])

    answers = model.predict(queries, top_k=50)

    assert all({candidate.class_id for candidate in answer.top} == set(IDS) for answer in answers)
    assert set(model.nearest(queries)) <= set(IDS)


def test_a_class_that_was_unlearned_cannot_win() -> None:
    """Once out of the bank it is not even listed for its own image."""
    space = Space("cosine")

    answers = NearestClassMean(space, bank_in(space).without([IDS[1]]), Certainty()).predict(features(4, seed=1))

    assert all(IDS[1] not in [candidate.class_id for candidate in answer.top] for answer in answers)
    assert [answers[row].class_id for row in (0, 2, 3)] == [IDS[0], IDS[2], IDS[3]]


def test_the_newest_prototype_answers() -> None:
    """A class that has moved is found where it stands now."""
    space = Space("cosine")
    moved = bank_in(space).with_copies(bank_in(space).prototypes.roll(1, 0))

    answers = NearestClassMean(space, moved, Certainty()).nearest(features(4, seed=1))

    assert answers == [IDS[1], IDS[2], IDS[3], IDS[0]]


def test_an_empty_bank_answers_unknown() -> None:
    """Before anything is taught every image is unknown, and nothing is listed."""
    model = NearestClassMean(Space("cosine"), PrototypeBank.empty(DIM), Certainty())

    answers = model.predict(features(3))

    assert [(answer.class_id, answer.unknown, answer.top) for answer in answers] == [(None, True, ())] * 3


def test_an_empty_bank_has_no_nearest_class() -> None:
    """Asked for the nearest whatever the distance, it says why there is none."""
    model = NearestClassMean(Space("cosine"), PrototypeBank.empty(DIM), Certainty())

    with pytest.raises(UnknownClass, match="no class has been taught"):
        model.nearest(features(1))


@pytest.mark.parametrize(("top_k", "listed"), [(1, 1), (3, 3), (4, 4), (5, 4), (500, 4)])
def test_no_more_candidates_are_listed_than_there_are_classes(top_k: int, listed: int) -> None:
    """Asking for more is no error."""
    (answer,) = classifier().predict(features(1), top_k=top_k)

    assert len(answer.top) == len({candidate.class_id for candidate in answer.top}) == listed


def test_no_image_gets_no_answer() -> None:
    """An empty batch is a batch."""
    assert classifier().predict(features(0)) == []


# Changes


def learned(seed: int, shots: int = 3) -> Learned:
    return Learned(features(1, seed=seed)[0], shots)


def test_changing_classes_equals_building_the_classifier_anew() -> None:
    """Added, replaced and removed classes, whatever their ids; rows are then in ascending order."""
    space = Space("cosine")
    model = NearestClassMean(space, bank_in(space).only(sorted(IDS)), Certainty())
    changes = {ClassId(61): learned(20), ClassId(9): learned(21), ClassId(7): None, ClassId(2000): learned(22)}

    changed = model.changed(changes, Certainty(0.5))

    expected = bank_in(space).without([ClassId(61), ClassId(7)])
    new = torch.cat([features(1, seed=seed) for seed in (20, 21, 22)])
    expected = expected.with_classes([ClassId(61), ClassId(9), ClassId(2000)], new, [3] * 3)
    anew = NearestClassMean(space, expected.only(sorted(expected.class_ids)), Certainty(0.5))
    assert changed.class_ids == anew.class_ids == (9, 60, 61, 1000, 2000)
    assert changed.shots.tolist() == anew.shots.tolist()
    assert torch.equal(changed.prototypes, anew.prototypes)
    assert changed.predict(features(5)) == anew.predict(features(5))
    assert model.class_ids == tuple(sorted(IDS))


def test_every_class_can_be_removed() -> None:
    """Then everything is unknown, as before anything was taught."""
    emptied = classifier().changed(dict.fromkeys(IDS), Certainty())

    assert len(emptied) == 0
    assert emptied.predict(features(1))[0].unknown


class Recorded(NearestClassMean):
    """A search of its own, as the serving runtime has one: it does the same, and notes that it was asked."""

    asked: ClassVar[list[str]] = []

    def _inner_products(self, queries: Tensor) -> Tensor:
        self.asked.append("products")
        return super()._inner_products(queries)


@pytest.mark.parametrize("metric", METRICS)
def test_a_subclass_may_search_in_its_own_way(metric: Metric) -> None:
    """The inner products are its own, also after a change, and the answers are the same."""
    space = space_of(metric)
    Recorded.asked.clear()

    own = Recorded(space, bank_in(space), Certainty()).changed({ClassId(9): learned(20)}, Certainty())
    answers = own.predict(features(5))

    assert type(own) is Recorded
    assert Recorded.asked == ["products"]
    assert answers == classifier(metric).changed({ClassId(9): learned(20)}, Certainty()).predict(features(5))


# Several views of an image


@pytest.mark.parametrize("metric", ["cosine", "power-cosine", "whitened"])
def test_the_distance_of_several_views_is_the_mean_of_their_distances(metric: Metric) -> None:
    """So a threshold that was found with single views keeps its meaning."""
    views = features(15).view(5, 3, DIM)
    model = classifier(metric)

    distances = model.distances(views)

    expected = torch.stack([model.distances(one) for one in views.unbind(1)]).mean(0)
    assert torch.allclose(expected, distances, atol=1e-6)


def test_several_views_in_a_euclidean_space_are_compared_as_their_mean() -> None:
    """There the mean of the vectors is a vector like any other."""
    views = features(15).view(5, 3, DIM)
    model = classifier("euclidean")

    answers = model.predict(views)

    assert answers == model.predict(views.mean(1))


@pytest.mark.parametrize("metric", METRICS)
def test_equal_views_are_answered_as_one(metric: Metric) -> None:
    """A look that shows nothing new changes nothing, neither the order nor the confidence."""
    single = features(5)
    model = classifier(metric, Certainty(threshold=0.1))

    once, thrice = model.predict(single), model.predict(single[:, None].expand(-1, 3, -1))

    for one, three in zip(once, thrice, strict=True):
        assert (one.unknown, [c.class_id for c in one.top]) == (three.unknown, [c.class_id for c in three.top])
        assert [c.confidence for c in three.top] == pytest.approx([c.confidence for c in one.top], abs=1e-4)


# Confidence


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_confidence_is_the_softmax_of_the_distances(temperature: float) -> None:
    """exp(−d/τ) over its sum, for all classes: listing fewer makes nobody surer."""
    model = classifier(certainty=Certainty(temperature))
    queries = features(5)

    answers = model.predict(queries, top_k=2)

    for row, answer in zip(model.distances(queries).tolist(), answers, strict=True):
        total = sum(math.exp(-distance / temperature) for distance in row)
        for candidate in answer.top:
            assert candidate.confidence == pytest.approx(math.exp(-candidate.distance / temperature) / total, rel=1e-4)


@pytest.mark.parametrize("metric", METRICS)
def test_confidences_sum_to_one_at_most_and_fall_with_the_distance(metric: Metric) -> None:
    """All classes together make one, fewer make less, and nearer is surer."""
    model, queries = classifier(metric), features(20)

    whole, part = model.predict(queries, top_k=4), model.predict(queries, top_k=2)

    for all_four, first_two in zip(whole, part, strict=True):
        confidences = [candidate.confidence for candidate in all_four.top]
        assert sum(confidences) == pytest.approx(1, abs=1e-5)
        assert sum(candidate.confidence for candidate in first_two.top) < 1
        assert confidences == sorted(confidences, reverse=True)
        assert confidences[0] > confidences[-1]


def test_the_temperature_minimises_the_surprise() -> None:
    """Among all candidates, in the unit of the mean nearest distance, none makes the truth more probable."""
    distances, own = random_distances()

    chosen = calibrate(distances, own).temperature

    unit = sum(min(row) for row in distances.tolist()) / len(distances)
    candidates = [unit * temperature for temperature in TEMPERATURES.tolist()]
    best = min(surprise(distances, own, temperature) for temperature in candidates[::4])
    assert min(abs(chosen / candidate - 1) for candidate in candidates) < 1e-4
    assert surprise(distances, own, chosen) <= best + 1e-6
    assert surprise(distances, own, chosen) < surprise(distances, own, 2 * chosen) - 0.01
    assert surprise(distances, own, chosen) < surprise(distances, own, chosen / 2) - 0.01


@pytest.mark.parametrize("unit", [1e-3, 1.0, 50.0])
def test_the_temperature_that_made_the_answers_is_found(unit: float) -> None:
    """Truths drawn with τ = 0.15 are calibrated to about that, whatever the metric's unit."""
    distances, own = random_distances(count=4000)

    certainty = calibrate(unit * distances, own)

    assert certainty.temperature == pytest.approx(0.15 * unit, rel=0.15)


def test_calibrated_confidence_is_the_share_of_right_answers() -> None:
    """Of images answered with a confidence around p, about p are right."""
    distances, own = random_distances(count=4000)

    temperature = calibrate(distances, own).temperature

    confidence, answer = torch.softmax(-distances / temperature, dim=1).max(1)
    for low in (0.4, 0.6):
        some = (confidence > low) & (confidence <= low + 0.2)
        assert some.sum() > 300
        assert (answer[some] == own[some]).float().mean().item() == pytest.approx(
            confidence[some].mean().item(), abs=0.05
        )


# Unknown


def test_what_is_too_far_is_unknown_but_the_nearest_are_listed() -> None:
    """No class is answered, yet whoever asks sees what it came closest to."""
    model = classifier(certainty=Certainty(threshold=0.01))
    opposite = -features(1, seed=1)

    (answer,) = model.predict(opposite, top_k=3)

    assert answer.unknown
    assert answer.class_id is None
    assert len(answer.top) == 3
    assert answer.top[0].class_id == model.nearest(opposite)[0]


def test_the_threshold_is_the_last_distance_that_is_known() -> None:
    """At the threshold an image is known, beyond it no more."""
    query = features(1)
    distance = classifier().predict(query)[0].top[0].distance

    at, below = (
        classifier(certainty=Certainty(threshold=threshold)).predict(query)[0]
        for threshold in (distance, 0.999 * distance)
    )

    assert not at.unknown
    assert at.class_id == at.top[0].class_id
    assert below.unknown


def test_nothing_is_unknown_before_calibration() -> None:
    """Without images to calibrate on there is no distance beyond which to doubt."""
    certainty = calibrate(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))

    assert certainty == Certainty()
    assert not classifier("euclidean", certainty).predict(1e6 + features(1))[0].unknown


@pytest.mark.parametrize("count", [20, 100, 1000])
def test_the_threshold_accepts_about_95_percent_of_known_images(count: int) -> None:
    """Judged by the nearest class, as images will be."""
    distances, own = random_distances(count)

    threshold = calibrate(distances, own).threshold

    accepted = sum(min(row) <= threshold for row in distances.tolist())
    assert ACCEPTED == 0.95
    tolerance = 2 / count if count >= MANY else 0.04
    assert 0.95 - tolerance <= accepted / count <= 0.95 + tolerance


def test_one_class_alone_gets_a_threshold_and_keeps_its_temperature() -> None:
    """There is nothing to confuse it with, so any temperature is as good."""
    distances = torch.linspace(0.1, 1.1, 101)[:, None]

    certainty = calibrate(distances, torch.zeros(101, dtype=torch.long))

    spread = statistics.stdev(distances[:, 0].tolist())
    assert certainty.threshold == pytest.approx(0.6 + DEVIATIONS * (1 + 2 / 101) * spread)
    assert certainty.temperature == Certainty().temperature


def test_one_image_alone_leaves_room_around_it() -> None:
    """A single distance says little about others: three times as far is still known."""
    certainty = calibrate(torch.tensor([[0.3, 0.9]]), torch.tensor([0]))

    assert certainty.threshold == pytest.approx(0.9)


@pytest.mark.parametrize("nearest", [0.0, -1e-7])
def test_images_at_no_distance_can_be_calibrated_on(nearest: float) -> None:
    """Guard images equal to their prototypes leave a temperature that divides, and a threshold they pass."""
    distances = torch.tensor([[nearest, 1.0], [1.0, nearest]])

    certainty = calibrate(distances, torch.tensor([0, 1]))

    assert certainty.temperature > 0
    assert certainty.threshold >= distances.min().item()


def test_without_images_there_is_no_threshold() -> None:
    """Not even zero: nothing is known about distances."""
    assert threshold_of(torch.zeros(0)) is None


def test_few_images_leave_more_room_than_many_of_the_same_spread() -> None:
    """In deviations from the mean; of many the quantile is taken, whatever the spread."""
    some, more = torch.tensor([0.2, 0.6]).repeat(2), torch.tensor([0.2, 0.6]).repeat(50)
    many = torch.linspace(0, 1, MANY + 1).square()

    rooms = [(threshold_of(distances) - 0.4) / statistics.stdev(distances.tolist()) for distances in (some, more)]

    assert rooms == pytest.approx([1.5 * DEVIATIONS, 1.02 * DEVIATIONS])
    assert threshold_of(many) == pytest.approx(0.95**2)


# The probability of the truth


def test_the_log_probability_is_a_softmax_at_the_best_temperature() -> None:
    """Written out for each image at the temperature that calibration finds."""
    distances, own = random_distances(30)
    temperature = calibrate(distances, own).temperature

    found = log_probability(distances, own)

    for row, truth, value in zip(distances.tolist(), own.tolist(), found.tolist(), strict=True):
        total = sum(math.exp(-distance / temperature) for distance in row)
        assert value == pytest.approx(-row[truth] / temperature - math.log(total), abs=1e-4)
    assert len(log_probability(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))) == 0


def test_the_unit_of_distances_does_not_matter_to_the_probability() -> None:
    """Spaces of different size can be compared: each has its own temperature."""
    distances, own = random_distances(30)

    assert torch.allclose(log_probability(distances, own), log_probability(1000 * distances, own), atol=1e-4)
