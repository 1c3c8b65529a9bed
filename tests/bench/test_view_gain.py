"""The gain of several views, measured on features with known results."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bench.datasets import DataError
from bench.view_gain import VIEWS, Features, measure_gain
from core.backbones import build
from core.space import Space
from core.views import LabelledViews

COSINE = Space("cosine")


def noisy(spread: float, views: int, classes: int = 8, seed: int = 3) -> LabelledViews:
    """Twelve images of each class around its own axis; the noise of each view is its own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(12)
    centres = torch.eye(16)[labels][:, None].expand(-1, views, -1)
    return LabelledViews(centres + spread * torch.randn(len(labels), views, 16, generator=generator), labels)


def test_views_whose_noise_is_independent_help() -> None:
    """The more, the better; one view is compared with itself."""
    found = measure_gain(COSINE, noisy(0.5, 1), noisy(0.5, 6, seed=4), 4, draws=20, seed=0)

    assert [one.views for one in found] == list(VIEWS)
    gains = [one.over(found[0])[0] for one in found]
    assert gains[0] == 0
    assert gains == sorted(gains)
    assert gains[-1] > 5 * found[-1].over(found[0])[1] > 0


def test_views_that_are_all_equal_are_worth_nothing() -> None:
    """Neither accuracy nor what is unknown changes."""
    single = noisy(0.5, 1, seed=4)
    repeated = LabelledViews(single.inputs.expand(-1, 6, -1), single.labels)

    one, *others = measure_gain(COSINE, noisy(0.5, 1), repeated, 4, draws=5, seed=0)

    assert 0 < one.accuracy[0] < 100
    assert all(other.accuracy == one.accuracy and other.unknown == one.unknown for other in others)


def test_other_classes_than_those_taught_are_an_error() -> None:
    """It says how many there are of each."""
    with pytest.raises(DataError, match=r"train/ has 8 classes and test/ 7"):
        measure_gain(COSINE, noisy(0.5, 1), noisy(0.5, 6, classes=7), 4, draws=1, seed=0)


def test_images_are_read_from_class_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of each as allowed, in all their views, the same ones for the same seed."""
    monkeypatch.setenv("PROTOQUAD_ENGINE", "torch")  # compiling would take longer than all the rest
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    features = Features(build("resnet32"))

    found, again = (features.read(tmp_path, views=4, most=2, seed=0) for _ in range(2))

    assert found.labels.tolist() == [0, 0, 1, 1]
    assert found.inputs.shape[:2] == (4, 4)
    assert torch.allclose(found.inputs, again.inputs)
    assert len({view.numpy().tobytes() for view in found.inputs[0]}) == 4
