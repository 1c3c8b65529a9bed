"""Trunk activations on disk."""

import os
from pathlib import Path

import pytest
import torch

from bench.activations import ActivationStore
from bench.datasets import DataError, DatasetImage, Stream
from bench.fscil import RunContext
from core.images import decode, views


def store_in(folder: Path, context: RunContext, augmented: int = 2) -> ActivationStore:
    return ActivationStore(folder, context.backbone, augmented=augmented, device=torch.device("cpu"), engine="torch")


def unreadable(image: DatasetImage) -> DatasetImage:
    def fail() -> bytes:
        raise AssertionError(f"{image.key} was read again")

    return DatasetImage(image.key, image.class_id, fail)


def test_a_row_is_the_trunks_output_for_the_images_views(tmp_path: Path, context: RunContext, stream: Stream) -> None:
    """The store holds the trunk's own activations of the centre view, in the requested order."""
    images = stream.base.train[:3][::-1]

    stored = store_in(tmp_path, context).views(images)

    for row, image in enumerate(images):
        centre = views(decode(image.read()), context.backbone.framing, 0, torch.Generator())
        with torch.no_grad():
            expected = context.backbone.trunk(centre)[0]
        assert torch.allclose(stored.inputs[row, 0].float(), expected, atol=1e-2)
    assert [image.class_id for image in images] == stored.labels.tolist()


def test_an_image_is_read_once_in_the_life_of_a_store(tmp_path: Path, context: RunContext, stream: Stream) -> None:
    """A second run finds the activations and does not touch the images."""
    images = stream.base.train[:4]
    first = store_in(tmp_path, context).views(images)

    again = store_in(tmp_path, context).views([unreadable(image) for image in images])

    assert torch.equal(first.inputs, again.inputs)


def test_two_stores_on_one_folder_do_not_overwrite_each_other(
    tmp_path: Path, context: RunContext, stream: Stream
) -> None:
    """Training and test images with the same number of views share a folder."""
    one, other = store_in(tmp_path, context), store_in(tmp_path, context)
    a, b = stream.base.train[:3], stream.base.train[3:6]

    one.views(a)
    other.views(b)
    together = one.views(a + b)

    alone = store_in(tmp_path / "alone", context).views(a + b)
    assert torch.equal(alone.inputs, together.inputs)


@pytest.mark.parametrize("damage", ["half a row", "half a key"])
def test_a_killed_run_continues(tmp_path: Path, context: RunContext, stream: Stream, damage: str) -> None:
    """Rows without a key and keys without an end are dropped, and the rest is kept."""
    images = stream.base.train[:4]
    whole = store_in(tmp_path / "whole", context).views(images)
    store_in(tmp_path, context).views(images[:2])
    if damage == "half a row":
        with (tmp_path / "rows.bin").open("ab") as rows:
            rows.write(b"\1" * 100)
    else:
        size = (tmp_path / "keys.txt").stat().st_size
        os.truncate(tmp_path / "keys.txt", size - 3)

    resumed = store_in(tmp_path, context).views(images)

    assert torch.equal(whole.inputs, resumed.inputs)


def test_views_of_an_image_do_not_depend_on_other_images(tmp_path: Path, context: RunContext, stream: Stream) -> None:
    """Augmentations are seeded by the image, so that every run and every set sees the same ones."""
    images = stream.base.train[:3]

    together = store_in(tmp_path / "a", context).views(images)
    alone = store_in(tmp_path / "b", context).views(images[2:])

    assert torch.allclose(together.inputs[2].float(), alone.inputs[0].float(), atol=1e-3)
    assert not torch.equal(alone.inputs[0, 1], alone.inputs[0, 2])


def test_a_broken_image_is_named(tmp_path: Path, context: RunContext) -> None:
    """The message says which file to look at."""
    broken = DatasetImage("train/owl/7.jpg", 3, lambda: b"\xff\xd8\xff garbage")

    with pytest.raises(DataError, match=r"train/owl/7\.jpg"):
        store_in(tmp_path, context).views([broken])


def test_the_input_of_the_whole_network_is_images(tmp_path: Path, context: RunContext, stream: Stream) -> None:
    """If the trunk is trained too, the store holds pixels."""
    store = ActivationStore(tmp_path, context.backbone, augmented=1, scope="all", device=torch.device("cpu"))

    stored = store.views(stream.base.train[:2])

    assert stored.inputs.dtype == torch.uint8
    assert stored.inputs.shape == (2, 2, 3, 32, 32)
