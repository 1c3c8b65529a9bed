"""Whichever engine computes, the answers are the same."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.load.sample_images import shot
from core.bank import ClassId
from core.classifier import Certainty, Learned
from core.images import centre_view, decode, stacked
from core.state import UNTAUGHT
from engine.backbone_cache import BackboneCache
from engine.class_search import ClassSearch
from engine.compiled_backbone import CompiledBackbone
from engine.compiled_module import Engine
from learners.loading import Means

CLASSES, SHOTS, ASKED = 12, 3, 2


def features(compiled: CompiledBackbone, numbers: range) -> Tensor:
    """Features of these images of every class, (classes, images, M)."""
    framing = compiled.framing
    data = [shot(number, place) for number in range(CLASSES) for place in numbers]
    views = stacked([centre_view(decode(one, short_side=framing.short_side), framing) for one in data])
    return compiled.tail({})(compiled.trunk({})(views)).unflatten(0, (CLASSES, len(numbers)))


def taught(compiled: CompiledBackbone) -> ClassSearch:
    nothing = Means((), torch.zeros(0, dtype=torch.long), torch.zeros(0, compiled.dim))
    prototypes = UNTAUGHT.embed(features(compiled, range(SHOTS))).mean(1)
    learned = {ClassId(number): Learned(prototype, SHOTS) for number, prototype in enumerate(prototypes)}
    return ClassSearch(UNTAUGHT, nothing, Certainty()).changed(learned, Certainty())


def noise(compiled: CompiledBackbone, count: int) -> Tensor:
    side, generator = compiled.framing.size, torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)


@pytest.fixture(scope="module")
def engines(prepared_backbones: Path) -> list[CompiledBackbone]:
    """The default backbone on OpenVINO and on torch."""
    chosen: tuple[Engine, ...] = ("openvino", "torch")
    return [
        BackboneCache(torch.device("cpu"), engine, prepared_backbones).compiled("efficientnet_lite0")
        for engine in chosen
    ]


def test_both_engines_compute_the_same_activations(engines: list[CompiledBackbone]) -> None:
    """Up to rounding."""
    fast, plain = (compiled.trunk({})(noise(compiled, 3)) for compiled in engines)

    assert fast.shape == plain.shape == (3, 192, 7, 7)
    assert (fast - plain).abs().max() < 1e-3 * plain.abs().max()


def test_both_engines_name_the_same_class_at_the_same_distance(engines: list[CompiledBackbone]) -> None:
    fast, plain = (
        taught(compiled).distances(features(compiled, range(SHOTS, SHOTS + ASKED)).flatten(0, 1))
        for compiled in engines
    )

    assert fast.argmin(1).tolist() == plain.argmin(1).tolist()
    assert len(set(fast.argmin(1).tolist())) == CLASSES, "the images tell classes apart"
    assert ((fast - plain).abs() / plain).max() < 1e-2


@pytest.mark.parametrize("count", [1, 5])
def test_a_batch_is_answered_as_its_images_are(engines: list[CompiledBackbone], count: int) -> None:
    """An image's answer does not depend on who else asked at the time."""
    compiled, _ = engines
    images = noise(compiled, 7)
    together = compiled.tail({})(compiled.trunk({})(images))
    apart = torch.cat([compiled.tail({})(compiled.trunk({})(part)) for part in images.split(count)])

    assert (together - apart).abs().max() < 1e-4 * together.abs().max()
