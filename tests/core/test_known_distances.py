"""How far held-out images are from the nearest class, for all classes of a session."""

import pytest
import torch

from core.bank import PrototypeBank
from core.folds import HeldOut
from core.known_distances import KnownDistances, after_training, distances_by_class
from core.space import Space
from core.state import LearnerState
from core.views import LabelledViews


def held_out(rows: list[int], own: list[int], distances: list[list[float]]) -> HeldOut:
    """Of classes 10, 11, … in one view."""
    columns = torch.tensor(own)
    return HeldOut(torch.tensor(rows), columns + 10, torch.tensor(distances)[:, None], columns)


def test_an_image_that_another_class_is_nearer_to_counts_with_that_distance() -> None:
    """It would be accepted at that distance, though it is farther from its own class."""
    found = held_out([0, 1], [0, 1], [[0.2, 0.9], [0.3, 0.7]])

    known = KnownDistances.of(found).by_class()

    assert {class_id: distances.tolist() for class_id, distances in known.items()} == {
        10: pytest.approx([0.2]),
        11: pytest.approx([0.3]),
    }


def test_shots_that_were_trained_on_count_as_the_untrained_network_saw_them_moved() -> None:
    """The shots that both networks measured are nearer by 0.2 on average under the trained one."""
    untrained = held_out([0, 2, 1, 3], [0, 1, 0, 1], [[0.4, 1.0], [1.0, 0.8], [0.3, 1.0], [1.0, 0.1]])
    trained = held_out([0, 2], [0, 1], [[0.3, 1.0], [1.0, 0.5]])

    found = after_training(trained, untrained)

    assert found.rows.tolist() == [0, 2, 1, 3]
    assert found.labels.tolist() == [10, 11, 10, 11]
    assert found.own.tolist() == [0, 1, 0, 1]
    assert found.distances.flatten().tolist() == pytest.approx([0.3, 1.0, 1.0, 0.5, 0.1, 0.8, 0.8, 0.0])


def test_without_a_shot_that_both_have_measured_the_trained_ones_are_all_there_is() -> None:
    """Nothing tells how far the others have moved."""
    trained = held_out([0], [0], [[0.3, 1.0]])

    found = after_training(trained, held_out([1], [1], [[1.0, 0.5]]))

    assert found.rows.tolist() == [0]


def test_a_single_shot_is_never_farther_than_the_nearest_other_class() -> None:
    """Its views are far apart: ten times that is more than the distance to anything."""
    views = torch.nn.functional.normalize(torch.tensor([[[1.0, 0.0, 0.1], [0.4, 1.0, 0.1]]]), dim=-1)
    bank = PrototypeBank.empty(3, 1).with_classes([1, 2], torch.tensor([[0.7, 0.5, 0.1], [1.0, 0.2, 0.9]]), [1, 5])
    state = LearnerState("resnet32", {}, Space("cosine"), bank)
    nothing = KnownDistances(torch.zeros(0, dtype=torch.long), torch.zeros(0))

    known = distances_by_class(nothing, state, LabelledViews(views, torch.tensor([1])), None, 0.0)

    to_other = 1 - torch.nn.functional.cosine_similarity(views[0, 0], bank.prototypes[1], dim=0)
    assert {class_id: found.tolist() for class_id, found in known.items()} == {1: pytest.approx([float(to_other)])}
