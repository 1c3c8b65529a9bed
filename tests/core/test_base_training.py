"""The training of a base session: growing images, moved images, other objectives, and going on after a stop."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from core.backbones import build
from core.base_session import base_session
from core.base_training import BaseConfig, Step, cross_entropy, scaled, shifted, size_at
from core.progress import Progress
from core.views import LabelledViews

SCRATCH = replace(BaseConfig.small_images(epochs=3), batch=8)


class Memory:
    """Keeps the last epoch."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None

    def load(self) -> dict[str, Any] | None:
        return self.kept

    def save(self, content: dict[str, Any]) -> None:
        self.kept = deepcopy(content)


@pytest.fixture
def images() -> LabelledViews:
    """Two classes of 8 images, 32 px, one view."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 120, (16, 1, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.arange(16) % 2
    pixels[labels == 1] += 100
    return LabelledViews(pixels, labels)


class Stopped(Exception): ...


def test_a_stopped_training_ends_as_if_it_had_not_been(images: LabelledViews) -> None:
    """Stopped in its last epoch it repeats only that one, to the same bits."""
    torch.manual_seed(0)
    network, memory, steps = build("resnet32"), Memory(), list[Progress]()
    whole = base_session(network, images, SCRATCH).state

    def stop(step: Progress) -> None:
        if step.epoch == 3:
            raise Stopped

    with pytest.raises(Stopped):
        base_session(network, images, SCRATCH, report=stop, checkpoint=memory)
    resumed = base_session(network, images, SCRATCH, report=steps.append, checkpoint=memory).state

    assert [step.epoch for step in steps] == [3, 3]
    assert all(torch.equal(whole.weights[name], resumed.weights[name]) for name in whole.weights)
    assert torch.equal(whole.bank.prototypes, resumed.bank.prototypes)


def test_images_grow_to_their_full_size() -> None:
    """In steps of four pixels, never smaller again, whole for the last third."""
    config = BaseConfig.small_images(epochs=60)

    sizes = [size_at(32, epoch, config) for epoch in range(60)]

    assert sizes == sorted(sizes)
    assert sizes[0] == 20
    assert set(sizes) == {20, 24, 28, 32}
    assert set(sizes[40:]) == {32}
    assert {size_at(32, epoch, BaseConfig.from_scratch(60)) for epoch in range(60)} == {32}


def test_the_network_sees_images_of_the_size_of_the_epoch(images: LabelledViews) -> None:
    """What the objective is given is scaled, in every view."""
    seen: list[int] = []

    def watch(step: Step) -> Tensor:
        seen.extend((step.inputs.shape[-1], step.another_view().shape[-1]))
        return cross_entropy(step)

    base_session(build("resnet32"), images, replace(SCRATCH, batch=16), objective=watch)

    assert seen == [20, 20, 24, 24, 32, 32]


def test_a_shifted_image_is_moved_and_maybe_mirrored() -> None:
    """Each is one of the moves by up to an eighth of the side, recomputed by padding and cutting."""
    images = torch.arange(6 * 2 * 16 * 16).reshape(6, 2, 16, 16).float()
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="replicate")

    moved = shifted(images, torch.Generator().manual_seed(0))

    def possible(row: int) -> list[Tensor]:
        cuts = [padded[row, :, y : y + 16, x : x + 16] for y in range(5) for x in range(5)]
        return [*cuts, *(cut.flip(-1) for cut in cuts)]

    assert all(any(torch.equal(moved[row], one) for one in possible(row)) for row in range(6))
    assert not torch.equal(moved, images)


def test_scaling_to_the_same_size_copies_nothing() -> None:
    """Bytes stay bytes, and a larger image becomes smaller."""
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)

    assert scaled(images, 32) is images
    assert (scaled(images, 20).shape[-1], scaled(images, 20).dtype) == (20, torch.uint8)
