"""Trunk activations on disk."""

import os
from pathlib import Path

import pytest
import torch

from bench.activations import ActivationStore
from bench.datasets import DataError, Picture, Stream
from bench.fscil import Bench
from core.images import decode, views


def store_in(folder: Path, bench: Bench, augmented: int = 2) -> ActivationStore:
    return ActivationStore(folder, bench.backbone, augmented=augmented, device=torch.device("cpu"), engine="torch")


def unreadable(picture: Picture) -> Picture:
    def fail() -> bytes:
        raise AssertionError(f"{picture.key} was read again")

    return Picture(picture.key, picture.class_id, fail)


def test_a_row_is_what_the_trunk_makes_of_the_pictures_views(tmp_path: Path, bench: Bench, stream: Stream) -> None:
    """The store holds the trunk's own activations of the centre view, in the order asked for."""
    pictures = stream.base.train[:3][::-1]

    stored = store_in(tmp_path, bench).views(pictures)

    for row, picture in enumerate(pictures):
        centre = views(decode(picture.read()), bench.backbone.framing, 0, torch.Generator())
        with torch.no_grad():
            expected = bench.backbone.trunk(centre)[0]
        assert torch.allclose(stored.inputs[row, 0].float(), expected, atol=1e-2)
    assert [picture.class_id for picture in pictures] == stored.labels.tolist()


def test_a_picture_is_read_once_in_the_life_of_a_store(tmp_path: Path, bench: Bench, stream: Stream) -> None:
    """A second run finds the activations and does not touch the pictures."""
    pictures = stream.base.train[:4]
    first = store_in(tmp_path, bench).views(pictures)

    again = store_in(tmp_path, bench).views([unreadable(picture) for picture in pictures])

    assert torch.equal(first.inputs, again.inputs)


def test_two_stores_on_one_folder_do_not_overwrite_each_other(tmp_path: Path, bench: Bench, stream: Stream) -> None:
    """Training and test pictures with the same number of views share a folder."""
    one, other = store_in(tmp_path, bench), store_in(tmp_path, bench)
    a, b = stream.base.train[:3], stream.base.train[3:6]

    one.views(a)
    other.views(b)
    together = one.views(a + b)

    alone = store_in(tmp_path / "alone", bench).views(a + b)
    assert torch.equal(alone.inputs, together.inputs)


@pytest.mark.parametrize("damage", ["half a row", "half a key"])
def test_a_killed_run_is_taken_up_again(tmp_path: Path, bench: Bench, stream: Stream, damage: str) -> None:
    """Rows without a key and keys without an end are dropped, and the rest is kept."""
    pictures = stream.base.train[:4]
    whole = store_in(tmp_path / "whole", bench).views(pictures)
    store_in(tmp_path, bench).views(pictures[:2])
    if damage == "half a row":
        with (tmp_path / "rows.bin").open("ab") as rows:
            rows.write(b"\1" * 100)
    else:
        size = (tmp_path / "keys.txt").stat().st_size
        os.truncate(tmp_path / "keys.txt", size - 3)

    resumed = store_in(tmp_path, bench).views(pictures)

    assert torch.equal(whole.inputs, resumed.inputs)


def test_views_of_a_picture_do_not_depend_on_its_company(tmp_path: Path, bench: Bench, stream: Stream) -> None:
    """Augmentations are seeded by the picture, so that every run and every set sees the same ones."""
    pictures = stream.base.train[:3]

    together = store_in(tmp_path / "a", bench).views(pictures)
    alone = store_in(tmp_path / "b", bench).views(pictures[2:])

    assert torch.allclose(together.inputs[2].float(), alone.inputs[0].float(), atol=1e-3)
    assert not torch.equal(alone.inputs[0, 1], alone.inputs[0, 2])


def test_a_broken_picture_is_named(tmp_path: Path, bench: Bench) -> None:
    """The message says which file to look at."""
    broken = Picture("train/owl/7.jpg", 3, lambda: b"\xff\xd8\xff garbage")

    with pytest.raises(DataError, match=r"train/owl/7\.jpg"):
        store_in(tmp_path, bench).views([broken])


def test_the_whole_network_is_fed_with_pictures(tmp_path: Path, bench: Bench, stream: Stream) -> None:
    """Where the trunk trains too, the store holds bytes."""
    store = ActivationStore(tmp_path, bench.backbone, augmented=1, scope="all", device=torch.device("cpu"))

    stored = store.views(stream.base.train[:2])

    assert stored.inputs.dtype == torch.uint8
    assert stored.inputs.shape == (2, 2, 3, 32, 32)
