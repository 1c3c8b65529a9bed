"""A folder of class folders is read, and its pictures are looked at, each once."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from core.backbones import Backbone
from engine.backbone_cache import BackboneCache
from engine.compiled_module import CompiledModule
from learners.base_folder import FolderError, read_folder
from learners.base_images import SPARE_BYTES, BaseImages, ImageReader, read_images
from learners.stored_images import views_of
from tests.painted import paint, picture

Look = Callable[..., BaseImages]
RED_BLUE = {"red": 5, "blue": 4}


# Reading


def test_each_folder_is_a_class_of_its_name(tmp_path: Path) -> None:
    """Classes and files come in the order of their names."""
    folder = paint(tmp_path, RED_BLUE)

    found = read_folder(folder)

    assert [(one.name, len(one.files)) for one in found] == [("blue", 4), ("red", 5)]
    assert found[0].files == tuple(folder / "blue" / f"{number}.png" for number in range(4))


def test_names_are_cleaned_as_those_of_taught_classes(tmp_path: Path) -> None:
    """Trimmed and composed, as a name in a request is."""
    paint(tmp_path, {"cafe\u0301  ": 2})

    found = read_folder(tmp_path)

    assert [one.name for one in found] == ["caf\u00e9"]


def test_a_file_counts_whatever_its_extension_and_only_where_it_lies(tmp_path: Path) -> None:
    """Hidden files and folders, files beside the class folders and folders within them are passed over."""
    paint(tmp_path, {"red": 2, ".cache": 2, "red/older": 2})
    (tmp_path / "red" / "scan").write_bytes(b"")
    (tmp_path / "red" / ".DS_Store").write_bytes(b"")
    (tmp_path / "README.txt").write_text("pictures")

    found = read_folder(tmp_path)

    assert {one.name: [file.name for file in one.files] for one in found} == {"red": ["0.png", "1.png", "scan"]}


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    """One that is missing, a file, and one with pictures but no class folders each get a sentence of their own."""
    (tmp_path / "file").write_bytes(b"")
    flat = paint(tmp_path, {"flat": 3}) / "flat"

    with pytest.raises(FolderError, match="nowhere does not exist; give a folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(FolderError, match="file is a file; give a folder"):
        read_folder(tmp_path / "file")
    with pytest.raises(FolderError, match="flat holds no folders; put the images of each class in a folder"):
        read_folder(flat)


def test_all_classes_with_too_few_files_are_named_at_once(tmp_path: Path) -> None:
    """Whoever has to put them right hears of every one."""
    paint(tmp_path, {"red": 2, "green": 1, "blue": 0, "black": 0})

    with pytest.raises(FolderError) as refused:
        read_folder(tmp_path)

    assert str(refused.value) == (
        "a class needs at least 2 images: 'black', 'blue' have no image that can be read; 'green' has only one. "
        "Add images to these folders or remove the folders"
    )


def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """The sentence says which folder it is and why."""
    with pytest.raises(FolderError, match=r"cannot name a class: the name contains a control character"):
        read_folder(paint(tmp_path, {"red\tred": 2}))


def test_two_folders_of_one_name_are_refused(tmp_path: Path) -> None:
    """After cleaning they would be the same class."""
    paint(tmp_path, {"red": 2, "red ": 2})

    with pytest.raises(FolderError, match="name the same class 'red'; merge them or rename one"):
        read_folder(tmp_path)


# Looking


@pytest.fixture(scope="module")
def backbone(networks: BackboneCache) -> Backbone:
    return networks.pretrained("resnet32")


@pytest.fixture(scope="module")
def trunk(networks: BackboneCache, backbone: Backbone) -> CompiledModule:
    return networks.compiled(backbone.name).pretrained_trunk


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    return tmp_path / "room"


@pytest.fixture
def looked(tmp_path: Path, room: Path, backbone: Backbone, trunk: CompiledModule) -> Look:
    """Looks at a painted folder."""

    def at(
        classes: dict[str, int] = RED_BLUE,
        through: CompiledModule | None = trunk,
        advance: Callable[[int], None] = lambda _: None,
        **options: Any,
    ) -> BaseImages:
        reader = ImageReader(backbone, through, augmented=2, **options)
        return read_images(read_folder(paint(tmp_path / "pictures", classes)), reader, room, advance)

    return at


def rows_by_content(looked: BaseImages) -> Counter[tuple[int, bytes]]:
    parts = [part for part in (looked.training, looked.guard) if part is not None]
    return Counter(
        (label, row.numpy().tobytes())
        for part in parts
        for label, row in zip(part.labels.tolist(), part.inputs, strict=True)
    )


def test_every_picture_is_seen_behind_the_trunk(looked: Look, backbone: Backbone, trunk: CompiledModule) -> None:
    """All views of all pictures, in half precision, each with its class; recomputed one picture at a time."""
    expected = Counter(
        (place, trunk(views_of(picture(name, number), backbone.framing, augmented=2)).half().numpy().tobytes())
        for place, name in enumerate(["blue", "red"])
        for number in range(RED_BLUE[name])
    )

    found = looked()

    assert found.training.inputs.dtype == torch.float16
    assert found.training.views == 3
    assert rows_by_content(found) == expected
    assert len(found) == 9


def test_two_pictures_of_each_class_are_held_out(looked: Look, backbone: Backbone, trunk: CompiledModule) -> None:
    """The guard's files are those of its rows, wherever in the folder they lay."""
    found = looked({"red": 5, "blue": 4, "grey": 2, "pink": 3})

    assert found.guard is not None
    assert Counter(found.guard.labels.tolist()) == {0: 2, 3: 2, 2: 1}  # grey has none to spare
    assert Counter(found.training.labels.tolist()) == {0: 2, 1: 2, 2: 2, 3: 3}
    for file, label, row in zip(found.guard_files, found.guard.labels.tolist(), found.guard.inputs, strict=True):
        assert file.parent.name == ["blue", "grey", "pink", "red"][label]
        expected = trunk(views_of(file.read_bytes(), backbone.framing, augmented=2)).half()
        assert torch.equal(row, expected)


def test_without_a_picture_to_spare_nothing_is_held_out(looked: Look) -> None:
    """Two pictures of a class are both learned from."""
    found = looked({"red": 2, "blue": 2})

    assert found.guard is None
    assert found.guard_files == ()
    assert len(found.training) == 4


def test_pictures_stay_bytes_where_the_whole_network_trains(looked: Look, backbone: Backbone) -> None:
    """Without a trunk to look through, the views themselves are kept."""
    found = looked(through=None)

    assert found.training.inputs.dtype == torch.uint8
    assert found.guard is not None
    first = views_of(found.guard_files[0].read_bytes(), backbone.framing, augmented=2)
    assert torch.equal(found.guard.inputs[0], first)


def test_rows_lie_in_a_file_without_a_name(looked: Look, room: Path) -> None:
    """They are mapped from the room's disk, not held in memory, and no folder shows them."""
    found = looked()

    assert found.guard is not None
    assert found.guard.inputs.untyped_storage().data_ptr() == found.training.inputs.untyped_storage().data_ptr()
    assert str(room) in Path("/proc/self/maps").read_text()
    assert list(room.iterdir()) == []


def test_an_interrupted_look_leaves_nothing(looked: Look, room: Path) -> None:
    """The file goes with whoever wrote it."""

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        looked(advance=stop)

    assert list(room.iterdir()) == []
    assert str(room) not in Path("/proc/self/maps").read_text()


def test_files_that_are_no_pictures_are_skipped_and_told(tmp_path: Path, looked: Look) -> None:
    """They are named with the reason; the others are learned from, and every file counts as looked at."""
    paint(tmp_path / "pictures", RED_BLUE)
    (tmp_path / "pictures" / "red" / "empty").write_bytes(b"")
    (tmp_path / "pictures" / "blue" / "notes.txt").write_text("a blue one")
    steps: list[int] = []

    found = looked(advance=steps.append)

    assert [(one.file.name, one.reason.split(";")[0]) for one in found.skipped] == [
        ("notes.txt", "this is not a known image format"),
        ("empty", "the image has no bytes"),
    ]
    assert len(found) == 9
    assert sum(steps) == 11


def test_a_picture_beyond_the_limit_is_skipped(tmp_path: Path, looked: Look) -> None:
    """What the service would refuse is not learned from either."""
    paint(tmp_path / "pictures", RED_BLUE)
    shutil.copyfile(_large(tmp_path), tmp_path / "pictures" / "red" / "large.png")

    found = looked(max_pixels=40 * 40)

    assert [one.file.name for one in found.skipped] == ["large.png"]


def test_classes_left_with_too_few_readable_pictures_are_all_named(tmp_path: Path, looked: Look) -> None:
    """Files there were enough of; pictures among them there were not."""
    paint(tmp_path / "pictures", {"red": 2, "green": 1, "blue": 0})
    for name in ("green/a", "blue/a", "blue/b"):
        (tmp_path / "pictures" / name).write_text("no picture")

    with pytest.raises(FolderError) as refused:
        looked({})

    assert "'blue' has no image that can be read; 'green' has only one" in str(refused.value)
    assert "(3 files could not be read)" in str(refused.value)


def test_too_small_a_disk_is_told_before_the_first_picture(looked: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour later it would be a crash."""
    free = shutil.disk_usage("/")._replace(free=SPARE_BYTES + 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    steps: list[int] = []

    with pytest.raises(
        FolderError, match=r"a base session of 9 images needs .* GB on the disk of .*room, where 0.0 GB"
    ):
        looked(advance=steps.append)

    assert steps == []


def _large(folder: Path) -> Path:
    from PIL import Image

    Image.new("RGB", (41, 40)).save(folder / "large.png")
    return folder / "large.png"
