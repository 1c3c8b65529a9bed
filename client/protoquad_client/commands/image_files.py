"""The images that a command line names: files, the files of a folder, or standard input. Nothing is decoded here."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
MAX_BYTES = 100 * 2**20  # of one image: as much as a service takes in one request, unless it is set otherwise
STANDARD_INPUT = "-"


class UnusableSource(Exception):
    """A folder or zip as a whole cannot be used; the message says what to do."""


class Unreadable(Exception):
    """An image cannot be sent; the message says why."""


@dataclass(frozen=True)
class ImageFile:
    """An image by the name to show for it, and how to get its bytes. Reading raises Unreadable."""

    shown: str
    read: Callable[[], bytes]

    @property
    def filename(self) -> str:
        """As it is sent along: without folders."""
        return PurePosixPath(self.shown.replace("\\", "/")).name


@dataclass(frozen=True)
class Refusal:
    """An image that was not sent, or that the service cannot use."""

    image: str
    reason: str


@dataclass(frozen=True)
class Found:
    """What was named: the images, and how many files of folders are not images by their names."""

    images: tuple[ImageFile, ...]
    left_out: int = 0


def read_image(file: ImageFile) -> bytes | Refusal:
    try:
        return file.read()
    except Unreadable as error:
        return Refusal(file.shown, str(error))


def image_file(path: Path) -> ImageFile:
    return ImageFile(str(path), lambda: _bytes_of(path))


def standard_input(stream: BinaryIO) -> ImageFile:
    """Read once: asked again, it gives the same bytes."""
    kept: list[bytes] = []

    def read() -> bytes:
        if not kept:
            kept.append(_bounded(stream))
        return kept[0]

    return ImageFile(STANDARD_INPUT, read)


def find_images(paths: Iterable[Path]) -> Found:
    """Files as they are named, whatever their suffix; of a folder, the visible files that are images by their names."""
    images: list[ImageFile] = []
    left_out = 0
    for path in paths:
        if path.is_dir():
            inside = [file for file in _visible(path) if file.is_file()]
            chosen = [file for file in inside if is_image_name(file.name)]
            images += map(image_file, chosen)
            left_out += len(inside) - len(chosen)
        else:
            images.append(image_file(path))
    return Found(tuple(images), left_out)


def is_image_name(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in SUFFIXES


def is_hidden(name: str) -> bool:
    """Files that systems leave behind in folders and archives."""
    return name.startswith(".") or name in {"__MACOSX", "Thumbs.db", "desktop.ini"}


def not_empty(data: bytes) -> bytes:
    if not data:
        raise Unreadable("the file is empty")
    return data


def _visible(folder: Path) -> Iterator[Path]:
    return (entry for entry in sorted(folder.iterdir()) if not is_hidden(entry.name))


def _bytes_of(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device might never end
            raise Unreadable("it is not a file")
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                raise Unreadable(f"it has more than {MAX_BYTES // 2**20} MB")
            return _bounded(stream)
    except OSError as error:
        raise Unreadable((error.strerror or str(error)).lower()) from error
    except ValueError as error:  # a NUL, as in a list that has no lines
        raise Unreadable("no file can have such a name") from error


def _bounded(stream: BinaryIO) -> bytes:
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreadable(f"it has more than {MAX_BYTES // 2**20} MB")
    return not_empty(data)
