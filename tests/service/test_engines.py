"""Whichever engine computes, the answers are the same."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.load.sample_images import shot
from core.bank import ClassId
from core.classifier import Certainty, Learned, NearestClassMean
from core.images import centre_view, decode, stacked
from core.state import UNTAUGHT
from engine.backbone_cache import BackboneCache
from engine.compiled_backbone import CompiledBackbone
from engine.compiled_module import Engine
from learners.loading import Means

CLASSES, SHOTS, ASKED = 12, 3, 2


def features(kit: CompiledBackbone, numbers: range) -> Tensor:
    """Of so many pictures of every class, (classes, pictures, M)."""
    framing = kit.framing
    data = [shot(number, place) for number in range(CLASSES) for place in numbers]
    views = stacked([centre_view(decode(one, short_side=framing.short_side), framing) for one in data])
    return kit.tail({})(kit.trunk({})(views)).unflatten(0, (CLASSES, len(numbers)))


def taught(kit: CompiledBackbone) -> NearestClassMean:
    nothing = Means((), torch.zeros(0, dtype=torch.long), torch.zeros(0, kit.dim))
    prototypes = UNTAUGHT.embed(features(kit, range(SHOTS))).mean(1)
    learned = {ClassId(number): Learned(prototype, SHOTS) for number, prototype in enumerate(prototypes)}
    return NearestClassMean(UNTAUGHT, nothing, Certainty()).changed(learned, Certainty())


def test_both_engines_name_the_same_class_at_the_same_distance(prepared_backbones: Path) -> None:
    engines: tuple[Engine, ...] = ("openvino", "torch")
    kits = [
        BackboneCache(torch.device("cpu"), engine, prepared_backbones).compiled("efficientnet_lite0")
        for engine in engines
    ]

    fast, plain = (taught(kit).distances(features(kit, range(SHOTS, SHOTS + ASKED)).flatten(0, 1)) for kit in kits)

    assert fast.argmin(1).tolist() == plain.argmin(1).tolist()
    assert len(set(fast.argmin(1).tolist())) == CLASSES, "the pictures tell classes apart"
    assert ((fast - plain).abs() / plain).max() < 1e-2


@pytest.mark.parametrize("count", [1, 5])
def test_a_batch_is_answered_as_its_pictures_are(prepared_backbones: Path, count: int) -> None:
    """A picture's answer does not depend on who else asked at the time."""
    kit = BackboneCache(torch.device("cpu"), "auto", prepared_backbones).compiled("efficientnet_lite0")
    side = kit.framing.size
    pictures = torch.randint(0, 256, (7, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    together = kit.tail({})(kit.trunk({})(pictures))
    apart = torch.cat([kit.tail({})(kit.trunk({})(part)) for part in pictures.split(count)])

    assert (together - apart).abs().max() < 1e-4 * together.abs().max()
