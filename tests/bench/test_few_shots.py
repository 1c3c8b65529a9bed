"""Five shots per class, measured on features with known results."""

import pytest
import torch
from torch import Tensor

from bench.datasets import load
from bench.few_shots import base_features, measure_accuracy, measure_open_set, measure_outliers
from bench.fscil import RunContext
from core.space import Space
from core.views import LabelledViews

COSINE = Space("cosine")


def clustered(spread: float) -> LabelledViews:
    """Eight classes of twelve images in two views, each class around its own axis."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(8).repeat_interleave(12)
    centres = torch.eye(16)[labels][:, None].expand(-1, 2, -1)
    return LabelledViews(centres + spread * torch.randn(96, 2, 16, generator=generator), labels)


def alike() -> LabelledViews:
    """The same without classes: all images come from one distribution."""
    generator = torch.Generator().manual_seed(3)
    noise: Tensor = 1 + 0.1 * torch.randn(96, 2, 16, generator=generator)
    return LabelledViews(noise, torch.arange(8).repeat_interleave(12))


def test_accuracy_is_100_for_separate_classes_and_chance_for_identical_ones() -> None:
    """Eight classes: one answer in eight is right by chance."""
    assert measure_accuracy(COSINE, clustered(0.05), draws=5, seed=0) == 100
    assert measure_accuracy(COSINE, alike(), draws=20, seed=0) < 25


@pytest.mark.parametrize("classes", [1, 3])
def test_separate_classes_are_accepted_and_others_are_unknown(classes: int) -> None:
    """Nearly all further images are accepted and all images of other classes are unknown."""
    found = measure_open_set(COSINE, clustered(0.05), classes, draws=20, seed=0)

    assert found.classes == classes
    assert found.accepted > 90
    assert found.unknown == 100


def test_images_of_identical_classes_are_accepted() -> None:
    """Images that do not differ by class cannot be detected as unknown, and the measure shows it."""
    found = measure_open_set(COSINE, alike(), 1, draws=20, seed=0)

    assert found.accepted > 85
    assert found.unknown < 15


def test_a_wrong_shot_is_reported_and_correct_ones_are_not() -> None:
    """For separate classes; identical classes have no wrong shots to find."""
    apart = measure_outliers(COSINE, clustered(0.05), draws=40, seed=0)
    nothing = measure_outliers(COSINE, alike(), draws=40, seed=0)

    assert apart.found == 100
    assert apart.false_alarms < 25
    assert nothing.found < 50


@pytest.mark.usefixtures("few_images")
def test_features_are_those_of_the_base_sessions_training_images(context: RunContext) -> None:
    """One row for each image, in the views that the benchmark uses."""
    base = load("shapes").base

    features = base_features(context, base)

    assert len(features) == len(base.train)
    assert features.inputs.shape[-1] == context.backbone.dim
    assert features.labels.tolist() == [image.class_id for image in base.train]
