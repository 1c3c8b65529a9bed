"""A zip of class folders, the input of a base session that was started over HTTP.

Nothing is ever unpacked to disk: each image is read from the zip when it is needed. So no name in it can lead anywhere,
and nothing is left behind. All that a zip says of itself is checked before the first image is read.
"""

import re
import stat
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from core.pixels import signature
from learners.base_folder import ClassFolder, FolderError, by_class_name, require_enough

MOST_FILES = 50_000
LARGEST_DIRECTORY = 8 * 2**20  # bytes that list the files: 50,000 of them, with names of a hundred characters
LONGEST_NAME = 200  # characters that an error shows
ENCRYPTED, UTF8 = 0x1, 0x800  # flags of a file
MEGABYTE = 2**20
ARCHIVES = frozenset({".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"})


class UnusableZip(FolderError):
    """The file is no zip, or one that a base session cannot use."""


@dataclass(frozen=True)
class ZipLimits:
    all_bytes: int  # of all files together, unpacked
    file_bytes: int  # of one


@dataclass(frozen=True, eq=False)
class ZipImage:
    """A file in a zip; any thread may read it."""

    zip: ZipFile
    lock: threading.Lock
    info: ZipInfo

    def __str__(self) -> str:
        return _shown(self.info)

    def read_bytes(self) -> bytes:
        """Never more than the zip says, whatever it holds; raises UnusableZip if that is not what it holds."""
        with self.lock, _damage(self.info), self.zip.open(self.info) as member:
            data = member.read(self.info.file_size)
            member.read(1)  # at its end the checksum is compared
        if len(data) != self.info.file_size:
            raise UnusableZip(f"{self} has another size than the zip says; make the zip again")
        return data


@contextmanager
def opened_zip(file: IO[bytes], limits: ZipLimits) -> Iterator[list[ClassFolder]]:
    """The class folders in a zip; raises UnusableZip or FolderError if it cannot be used."""
    careful = _Careful(file)
    try:
        archive = ZipFile(careful)
    except (BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise UnusableZip(f"this is not a zip file, or it is damaged ({error}); make it again") from error
    careful.most = file.seek(0, 2)
    with archive:
        paths = _checked(archive.infolist(), limits)
        yield _class_folders(archive, paths)


def require_readable(folders: Sequence[ClassFolder]) -> None:
    """Read every file once: raises if one is damaged, or if a class has too few that begin as an image does."""
    readable = {
        folder.name: sum(signature(file.read_bytes()) is not None for file in folder.files) for folder in folders
    }
    skipped = sum(len(folder.files) for folder in folders) - sum(readable.values())
    require_enough(readable, skipped)


class _Careful:
    """The file, of which no more than `most` bytes are read at once: `ZipFile` reads a whole list of files."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.most = LARGEST_DIRECTORY
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, count: int = -1) -> bytes:
        if count > self.most:
            raise UnusableZip(f"the zip has more than {MOST_FILES:,} files; send fewer images, or learn from a folder")
        return self._file.read(count)


@contextmanager
def _damage(info: ZipInfo) -> Iterator[None]:
    try:
        yield
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UnusableZip(f"{_shown(info)} is damaged in the zip ({error}); make the zip again") from error


def _checked(listed: Sequence[ZipInfo], limits: ZipLimits) -> dict[PurePosixPath, ZipInfo]:
    """The files by their paths, without folders and hidden files."""
    found: dict[PurePosixPath, ZipInfo] = {}
    if len(listed) > MOST_FILES:
        raise UnusableZip(
            f"the zip has {len(listed):,} files, of {MOST_FILES:,} at most; send fewer images, or learn from a folder"
        )
    for info in listed:
        path = _path(info)
        if info.is_dir() or any(part.startswith(".") or part == "__MACOSX" for part in path.parts):
            continue
        _require_plain(info, path, limits)
        if path in found:
            raise UnusableZip(f"{_shown(info)} is in the zip twice; make the zip again")
        found[path] = info
    unpacked = sum(info.file_size for info in found.values())
    if unpacked > limits.all_bytes:
        raise UnusableZip(
            f"the files in the zip have {_size(unpacked)} together, of {_size(limits.all_bytes)} at most "
            "(PROTOQUAD_MAX_ZIP_BYTES); send fewer or smaller images, or learn from a folder"
        )
    return found


def _path(info: ZipInfo) -> PurePosixPath:
    """Raises unless it leads down from the root of the zip."""
    name = _name(info)
    parts = name.removesuffix("/").split("/")
    if "\\" in name or "\0" in name or re.match(r"[A-Za-z]:", name) or any(part in {"", ".", ".."} for part in parts):
        raise UnusableZip(f"the zip has a file '{_shown(info)}', whose path leads out of it; make the zip again")
    return PurePosixPath(name)


def _require_plain(info: ZipInfo, path: PurePosixPath, limits: ZipLimits) -> None:
    shown, kind = _shown(info), stat.S_IFMT(info.external_attr >> 16)
    if kind not in {0, stat.S_IFREG}:
        raise UnusableZip(f"{shown} is a link or a device, not a file; put the images themselves into the zip")
    if info.flag_bits & ENCRYPTED:
        raise UnusableZip(f"{shown} is encrypted; make the zip without a password")
    if info.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
        raise UnusableZip(f"{shown} is compressed in an unusual way; make the zip with the usual one (deflate)")
    if path.suffix.lower() in ARCHIVES:
        raise UnusableZip(f"{shown} is an archive within the zip; unpack it first, and zip the images themselves")
    if info.file_size > limits.file_bytes:
        raise UnusableZip(
            f"{shown} has {_size(info.file_size)}, and an image may have {_size(limits.file_bytes)} "
            "(PROTOQUAD_MAX_REQUEST_BYTES); scale it down"
        )


def _class_folders(archive: ZipFile, paths: dict[PurePosixPath, ZipInfo]) -> list[ClassFolder]:
    """As `read_folder` reads a folder; a single folder around the class folders does not count."""
    around = 1 if len({path.parts[0] for path in paths}) == 1 and all(len(path.parts) > 2 for path in paths) else 0
    inside = {tuple(path.parts[around:]): info for path, info in paths.items()}
    folders = sorted({PurePosixPath(parts[0]) for parts in inside if len(parts) > 1})
    if not folders:
        raise UnusableZip("the zip has no folders; put the images of each class in a folder that has the class's name")
    lock = threading.Lock()
    files: dict[str, list[ZipImage]] = {folder.name: [] for folder in folders}
    for parts in sorted(inside):
        if len(parts) == 2:
            files[parts[0]].append(ZipImage(archive, lock, inside[parts]))
    found = [ClassFolder(name, tuple(files[folder.name])) for name, folder in by_class_name(folders).items()]
    require_enough({folder.name: len(folder.files) for folder in found})
    return found


def _name(info: ZipInfo) -> str:
    """Some programs write UTF-8 and do not say so."""
    if info.flag_bits & UTF8:
        return info.orig_filename
    try:
        return info.orig_filename.encode("cp437").decode()
    except UnicodeError:
        return info.orig_filename


def _shown(info: ZipInfo) -> str:
    name = _name(info)
    return name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "…"


def _size(count: int) -> str:
    return f"{count / MEGABYTE:,.1f} MB" if count >= MEGABYTE else f"{count:,} bytes"
