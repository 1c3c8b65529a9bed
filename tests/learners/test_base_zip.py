"""A zip is read as a folder is, in place, and whatever is wrong with it is a sentence."""

import io
import re
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from learners import base_zip
from learners.base_folder import FolderError, read_folder
from learners.base_zip import UnusableZip, ZipLimits, opened_zip, require_readable
from tests.painted import picture
from tests.zips import claiming_size, classes, folder_of, link, with_entry, zipped

LIMITS = ZipLimits(all_bytes=10_000_000, file_bytes=1_000_000)
GOOD = classes(red=3, blue=2)


def read(data: bytes, limits: ZipLimits = LIMITS) -> dict[str, dict[str, bytes]]:
    """The content of every file, by class and by what it is called."""
    with opened_zip(io.BytesIO(data), limits) as folders:
        return {folder.name: {str(file): file.read_bytes() for file in folder.files} for folder in folders}


def complaint(data: bytes, limits: ZipLimits = LIMITS) -> str:
    with pytest.raises(FolderError) as refused, opened_zip(io.BytesIO(data), limits) as folders:
        require_readable(folders)
    return str(refused.value)


# What is read


@pytest.mark.parametrize("around", ["", "things/"])
def test_a_zip_has_the_classes_of_its_folders(around: str) -> None:
    """In the order of their names; one folder around them all does not count."""
    files = classes(around, red=3, blue=2)

    found = read(zipped(files, compression=zipfile.ZIP_DEFLATED))

    assert list(found) == ["blue", "red"]
    assert {name: data for folder in found.values() for name, data in folder.items()} == files


def test_a_zip_is_read_as_the_folder_that_it_was_made_of(tmp_path: Path) -> None:
    """Hidden files, files beside the class folders and folders within them are passed over in both."""
    strange = {".DS_Store": b"x", "README.txt": b"x", "red/.hidden": b"x", "red/older/0.png": b"x", "caf\u00e9/0": b"x"}
    files = {**GOOD, **strange, "caf\u00e9/1": b"x"}

    found = read(zipped({**files, "__MACOSX/red/0.png": b"x"}))

    folder = read_folder(folder_of(files, tmp_path))
    assert {name: sorted(Path(file).name for file in own) for name, own in found.items()} == {
        one.name: [file.name for file in one.files] for one in folder
    }


def test_names_that_do_not_say_that_they_are_utf8_are_read_as_utf8() -> None:
    """As the zips of some desktops have them."""
    data = zipped({**GOOD, "café/0.png": picture("red", 7), "café/1.png": picture("red", 8)})
    unsaid = re.sub(
        rb"(PK\x03\x04..|PK\x01\x02....)..", lambda head: head[1] + bytes(2), data, flags=re.DOTALL
    )  # flags

    assert unsaid != data
    assert set(read(unsaid)) == {"blue", "red", "café"}


# What is refused


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/etc/passwd", "leads out of it"),
        ("../red/0.png", "leads out of it"),
        ("red/../../0.png", "leads out of it"),
        ("C:/red/0.png", "leads out of it"),
        ("red\\0.png", "leads out of it"),
        ("red//0.png", "leads out of it"),
        ("red/more.zip", "is an archive within the zip; unpack it first"),
        ("red/more.tar.GZ", "is an archive within the zip; unpack it first"),
        ("red/control\x07/0.png", ""),
        ("\x07/0.png", "cannot name a class"),
    ],
)
def test_a_path_that_is_none_is_refused(name: str, reason: str) -> None:
    """Whatever it leads to, nothing is ever written there."""
    data = zipped({**GOOD, name: picture("red", 9)})

    if reason:
        assert reason in complaint(data)
    else:
        assert "blue" in read(data)  # a folder within a class folder, which is passed over


def test_a_link_is_refused() -> None:
    """It would name a file of the service's own disk."""
    assert "red/passwords is a link or a device" in complaint(with_entry(GOOD, link("red/passwords"), b"/etc/passwd"))


def test_a_bomb_is_refused_by_what_it_says() -> None:
    """Before a byte of it is unpacked."""
    bomb = zipped({**GOOD, "red/flat.bmp": bytes(20_000_000)}, compression=zipfile.ZIP_DEFLATED)
    many = zipped({**GOOD, **{f"red/{n}.bmp": bytes(900_000) for n in range(12)}}, compression=zipfile.ZIP_DEFLATED)

    assert "red/flat.bmp has 19.1 MB, and an image may have 1,000,000 bytes" in complaint(bomb)
    assert "MB together, of 9.5 MB at most (PROTOQUAD_MAX_ZIP_BYTES)" in complaint(many)


def test_a_bomb_that_lies_takes_no_memory() -> None:
    """Not more is unpacked than it says, and then the check sum is wrong."""
    data = zipped({**GOOD, "red/flat.bmp": bytes(60_000_000)}, compression=zipfile.ZIP_DEFLATED)
    lying = claiming_size(data, "red/flat.bmp", 1000)

    tracemalloc.start()
    reason = complaint(lying)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert "red/flat.bmp is damaged in the zip" in reason
    assert most < 20_000_000


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number, and by the size of the list before it is read."""
    data = zipped(classes(red=4, blue=3))
    monkeypatch.setattr(base_zip, "MOST_FILES", 6)
    numbered = complaint(data)
    monkeypatch.setattr(base_zip, "LARGEST_DIRECTORY", 300)

    listed = complaint(data)

    assert "the zip has 7 files, of 6 at most" in numbered
    assert "the zip has more than 6 files" in listed


def test_what_is_no_zip_or_half_of_one_is_refused() -> None:
    """A word of the library that reads it is in the sentence."""
    data = zipped(GOOD)

    assert "this is not a zip file, or it is damaged" in complaint(b"no zip")
    assert "this is not a zip file, or it is damaged" in complaint(b"")
    assert "this is not a zip file, or it is damaged" in complaint(data[: len(data) // 2])
    assert "is damaged in the zip" in complaint(data.replace(picture("red", 0)[:200], b"x" * 200))


def test_an_encrypted_or_unusually_compressed_file_is_refused() -> None:
    """Both would fail later, with a message that nobody understands."""
    encrypted = bytearray(zipped(GOOD))
    encrypted[encrypted.find(b"PK\x01\x02") + 8] |= 1

    assert "is encrypted; make the zip without a password" in complaint(bytes(encrypted))
    assert "is compressed in an unusual way" in complaint(zipped(GOOD, compression=zipfile.ZIP_LZMA))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused() -> None:
    """Which of the two would be learned from?"""
    assert "red/0.png is in the zip twice" in complaint(with_entry(GOOD, zipfile.ZipInfo("red/0.png"), b"another"))


def test_a_zip_without_class_folders_or_with_too_few_images_is_refused() -> None:
    """With the sentences that a folder gets; files that do not begin as images do not count."""
    flat = zipped({"0.png": picture("red", 0), "1.png": picture("red", 1)})
    few = zipped({**classes(red=2), "blue/0.png": picture("blue", 0), "blue/1.txt": b"a note"})

    assert "the zip has no folders; put the images of each class in a folder" in complaint(flat)
    assert "a class needs at least 2 images: 'blue' has only one (1 files could not be read)" in complaint(few)
    assert "the zip has no folders" in complaint(zipped({}))


def test_errors_do_not_repeat_names_without_end() -> None:
    """A name may have 64 KB."""
    assert len(complaint(zipped({**GOOD, "red/" + "x" * 60_000 + ".zip": b""}))) < 400


def test_an_unusable_zip_is_an_unusable_folder() -> None:
    """So that whoever handles the one handles the other."""
    assert issubclass(UnusableZip, FolderError)
