"""The threshold for unknown, and the leeway of each class around it."""

import pytest
import torch

from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, Learned, NearestClassMean
from core.space import Space
from core.unknown import ACCEPTED, BELIEF, beyond_leeway, leeways, threshold_of

TIGHT, LOOSE = ClassId(3), ClassId(8)
HELD_OUT = {TIGHT: torch.full((5,), 0.1), LOOSE: torch.full((5,), 0.5)}


def classifier(*, by_class: bool, threshold: float = 0.4) -> NearestClassMean:
    """Two classes at right angles."""
    bank = PrototypeBank.empty(2, 1).with_classes((TIGHT, LOOSE), torch.eye(2), [5, 5])
    return NearestClassMean(Space("cosine", by_class=by_class), bank, Certainty(threshold=threshold), HELD_OUT)


def away_from(row: int, distance: float) -> torch.Tensor:
    """A feature whose cosine distance from the prototype of this row is the given one, far from the other."""
    cosine = 1 - distance
    feature = torch.tensor([cosine, -((1 - cosine**2) ** 0.5)])
    return feature if row == 0 else feature.flip(0)


def test_a_class_whose_images_differ_more_has_more_leeway() -> None:
    """The difference from the mean of all classes, as far as its images are believed."""
    found = leeways(torch.tensor([0.1, 0.5]), torch.tensor([5.0, 5.0]))

    believed = 5 / (5 + BELIEF)
    assert found.tolist() == pytest.approx([-0.2 * believed, 0.2 * believed])


def test_one_image_is_believed_less_than_many() -> None:
    """The leeway of a class with few held-out images is near that of all classes."""
    few, many = (leeways(torch.tensor([0.1, 0.5]), torch.tensor([n, n]))[1] for n in (1.0, 100.0))

    assert 0 < few < many < 0.2


def test_a_class_without_held_out_images_has_no_leeway() -> None:
    """Nothing is known of its spread, and it says nothing of the others'."""
    found = leeways(torch.tensor([0.0, 0.4, 0.4]), torch.tensor([0.0, 5.0, 5.0]))

    assert found.tolist() == pytest.approx([0.0, 0.0, 0.0])
    assert leeways(torch.zeros(2), torch.zeros(2)).tolist() == [0.0, 0.0]


def test_the_same_distance_is_known_for_one_class_and_unknown_for_another() -> None:
    """The threshold lies between them."""
    found = classifier(by_class=True)

    answers = found.predict(torch.stack([away_from(0, 0.4), away_from(1, 0.4)]))

    assert [answer.unknown for answer in answers] == [True, False]
    assert [answer.top[0].class_id for answer in answers] == [TIGHT, LOOSE]


def test_a_space_without_leeways_has_one_threshold() -> None:
    """Versions of earlier releases answer as they did, to the last bit of the threshold."""
    threshold = 0.4000000123456789
    found = classifier(by_class=False, threshold=threshold)

    answers = found.predict(torch.stack([away_from(0, 0.39), away_from(1, 0.41)]))

    assert [answer.unknown for answer in answers] == [False, True]
    assert found.leeway.tolist() == [0.0, 0.0]


def test_leeways_follow_changes_as_if_made_anew() -> None:
    """A class added, another removed: the same as a classifier of what is left."""
    held_out = torch.full((3,), 0.3)
    changed = classifier(by_class=True).changed(
        {ClassId(5): Learned(torch.ones(2), 3, held_out), TIGHT: None}, Certainty()
    )
    bank = PrototypeBank.empty(2, 1).with_classes((ClassId(5), LOOSE), torch.tensor([[1.0, 1.0], [0.0, 1.0]]), [3, 5])
    anew = NearestClassMean(changed.space, bank, Certainty(), {ClassId(5): held_out, LOOSE: HELD_OUT[LOOSE]})

    assert changed.class_ids == anew.class_ids
    assert torch.equal(changed.leeway, anew.leeway)


def test_leeway_with_one_more_class_is_what_it_will_be() -> None:
    """Known before it is published; for a class that is known it replaces what was."""
    found, held_out = classifier(by_class=True), torch.full((3,), 0.3)
    later = found.changed({ClassId(9): Learned(torch.ones(2), 3, held_out)}, Certainty())
    other = found.changed({LOOSE: Learned(torch.ones(2), 3, held_out)}, Certainty())

    assert torch.equal(found.leeway_with(ClassId(9), held_out), later.leeway)
    assert torch.equal(found.leeway_with(LOOSE, held_out), other.leeway)


def test_a_held_out_image_gives_itself_no_leeway() -> None:
    """Only the others of its class do: else a far image would excuse itself."""
    distances, owners = torch.tensor([0.1, 0.1, 0.7, 0.3, 0.3, 0.3]), torch.tensor([0, 0, 0, 1, 1, 1])

    found = beyond_leeway(distances, owners)

    grand = (0.3 + 0.3) / 2
    assert float(found[2]) == pytest.approx(0.7 - 2 / (2 + BELIEF) * (0.1 - grand))


def test_new_images_of_classes_that_differ_in_spread_are_accepted_as_often_as_promised() -> None:
    """Simulated: many classes, five held-out images each, then new images of them."""
    generator = torch.Generator().manual_seed(0)
    typical = 0.2 + 0.3 * torch.rand(400, 1, generator=generator)
    shots, new = (typical + 0.05 * torch.randn(400, n, generator=generator) for n in (5, 50))
    owners = torch.arange(400).repeat_interleave(5)

    threshold = threshold_of(beyond_leeway(shots.flatten(), owners))
    leeway = leeways(shots.mean(1), torch.full((400,), 5.0))

    assert threshold is not None
    assert float((new - leeway[:, None] <= threshold).float().mean()) == pytest.approx(ACCEPTED, abs=0.02)


def test_a_class_of_few_images_is_favoured_over_a_well_known_one() -> None:
    """At the same angle it is the nearer one, and the less so the more images it has."""
    space, query = Space("cosine", allowance=0.5), torch.tensor([[1.0, 1.0]])

    found = space.distances(query, torch.eye(2), torch.tensor([5, 1000]))[0]
    plain = Space("cosine").distances(query, torch.eye(2), torch.tensor([5, 1000]))[0]

    assert found[0] < found[1]
    assert 1 - float(found[0]) == pytest.approx((1 - float(plain[0])) * 1.1)
    assert plain[0] == plain[1]


def test_the_allowance_is_in_every_way_of_measuring_a_distance() -> None:
    """Of a classifier, of a space, and of rows side by side."""
    space = Space("cosine", allowance=0.5)
    bank = PrototypeBank.empty(2, 1).with_classes((TIGHT, LOOSE), torch.eye(2), [5, 50])
    query = torch.tensor([[0.6, 0.8], [0.8, 0.6]])

    by_space = space.distances(query, bank.prototypes, bank.shots)
    by_classifier = NearestClassMean(space, bank, Certainty()).distances(query)

    assert torch.allclose(by_space, by_classifier)
    assert torch.allclose(by_space.diagonal(), space.apart(query, bank.prototypes, bank.shots))
