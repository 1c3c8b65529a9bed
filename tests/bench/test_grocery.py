"""A folder with training and test images as a stream."""

from pathlib import Path

import pytest

from bench.datasets import DataError, load


def write_classes(root: Path, classes: int, train: int = 6, test: int = 2) -> Path:
    """Class folders with empty files: a stream lists images and opens none."""
    for part, count in (("train", train), ("test", test)):
        for number in range(classes):
            folder = root / part / f"food {number:02}"
            folder.mkdir(parents=True)
            for image in range(count):
                (folder / f"{image}.jpg").touch()
    return root


def test_half_of_the_classes_are_new(tmp_path: Path) -> None:
    """81 classes make 41 base classes and eight sessions of five, each class with five of its training images."""
    stream = load("grocery", write_classes(tmp_path, 81))

    assert [len(session.class_ids) for session in stream.sessions] == [41] + [5] * 8
    assert len(stream.base.train) == 41 * 6
    assert {len(session.train) for session in stream.sessions[1:]} == {25}
    assert {len(session.test) for session in stream.sessions[1:]} == {10}
    assert all(image.key.startswith("train/") for session in stream.sessions for image in session.train)


def test_a_seed_divides_and_a_draw_changes_the_shots_only(tmp_path: Path) -> None:
    """Another seed has other base classes; another draw has the same classes and tests."""
    root = write_classes(tmp_path, 20)
    standard, again, drawn, seeded = (
        load("grocery", root),
        load("grocery", root),
        load("grocery", root, draw=1),
        load("grocery", root, seed=1),
    )

    assert standard == again
    assert standard.base == drawn.base
    assert [one.test for one in standard.sessions] == [one.test for one in drawn.sessions]
    assert standard.sessions[1].train != drawn.sessions[1].train
    assert set(standard.base.class_ids) != set(seeded.base.class_ids)


def test_a_class_of_few_images_is_a_base_class(tmp_path: Path) -> None:
    """Whatever the seed: it could not give five shots."""
    root = write_classes(tmp_path, 12)
    for image in range(3):
        (root / "train" / "food 07" / f"{image}.jpg").unlink()

    assert all(7 in load("grocery", root, seed=seed).base.class_ids for seed in range(5))


def test_a_folder_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    """Too few classes, too few images, a class in one part only: each is named."""
    with pytest.raises(DataError, match="9 classes"):
        load("grocery", write_classes(tmp_path / "few", 9))
    with pytest.raises(DataError, match="0 of them with 5 training images"):
        load("grocery", write_classes(tmp_path / "short", 10, train=4))
    with pytest.raises(DataError, match="food 00"):
        load("grocery", write_classes(tmp_path / "untested", 10, test=0))
    (write_classes(tmp_path / "one", 10) / "train" / "zebra").mkdir()
    with pytest.raises(DataError, match="zebra"):
        load("grocery", tmp_path / "one")


def test_where_to_get_miniimagenet_is_said() -> None:
    """Its images cannot be handed on, so the message names who does."""
    with pytest.raises(DataError, match=r"image-net\.org"):
        load("miniimagenet")
