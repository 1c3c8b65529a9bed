"""What few shots are worth, measured on features whose answer is known."""

import pytest
import torch
from torch import Tensor

from bench.datasets import load
from bench.few_shots import base_features, measure_accuracy, measure_openness, measure_outliers
from bench.fscil import Bench
from core.space import Space
from core.views import LabelledViews

COSINE = Space("cosine")


def clustered(spread: float) -> LabelledViews:
    """Eight classes of twelve pictures in two views, each class about an axis of its own."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(8).repeat_interleave(12)
    centres = torch.eye(16)[labels][:, None].expand(-1, 2, -1)
    return LabelledViews(centres + spread * torch.randn(96, 2, 16, generator=generator), labels)


def alike() -> LabelledViews:
    """The same without any class: all pictures are drawn alike."""
    generator = torch.Generator().manual_seed(3)
    noise: Tensor = 1 + 0.1 * torch.randn(96, 2, 16, generator=generator)
    return LabelledViews(noise, torch.arange(8).repeat_interleave(12))


def test_accuracy_is_whole_where_classes_lie_apart_and_chance_where_there_are_none() -> None:
    """Eight classes: one answer in eight is right by chance."""
    assert measure_accuracy(COSINE, clustered(0.05), draws=5, seed=0) == 100
    assert measure_accuracy(COSINE, alike(), draws=20, seed=0) < 25


@pytest.mark.parametrize("classes", [1, 3])
def test_classes_that_lie_apart_are_told_from_strangers(classes: int) -> None:
    """Nearly all further pictures are accepted and every stranger is refused."""
    found = measure_openness(COSINE, clustered(0.05), classes, draws=20, seed=0)

    assert found.classes == classes
    assert found.accepted > 90
    assert found.refused == 100


def test_where_there_are_no_classes_strangers_pass() -> None:
    """The measure does not flatter: pictures that are all alike are accepted whoever's they are."""
    found = measure_openness(COSINE, alike(), 1, draws=20, seed=0)

    assert found.accepted > 85
    assert found.refused < 15


def test_a_stranger_among_the_shots_is_found_and_right_ones_are_left_alone() -> None:
    """With classes that lie apart; without any there is nothing to find."""
    apart = measure_outliers(COSINE, clustered(0.05), draws=40, seed=0)
    nothing = measure_outliers(COSINE, alike(), draws=40, seed=0)

    assert apart.found == 100
    assert apart.false_alarms < 25
    assert nothing.found < 50


def test_it_is_measured_on_training_pictures_of_the_base_session(bench: Bench) -> None:
    """One row of features for each of them, in the views that the benchmark uses."""
    base = load("shapes").base

    features = base_features(bench, base)

    assert len(features) == len(base.train)
    assert features.inputs.shape[-1] == bench.backbone.dim
    assert features.labels.tolist() == [picture.class_id for picture in base.train]
