"""The files of a zip, read one at a time without unpacking it.

Nothing is written to disk, so a path that leads out of the zip could do no harm; it is refused all the same, with links
and with what unpacks to far more than it should: whoever made such a zip made it on purpose.
"""

import stat
import zipfile
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath

from protoquad_client.commands.image_files import MAX_BYTES, ImageFile, Refusal, Unreadable, UnusableSource, not_empty

MAX_FILES = 1_000_000
MAX_RATIO = 100  # an image is compressed already: one that a zip makes this much smaller is not an image
UTF8 = 0x800  # flag of a file: its name is not in the old encoding
ALWAYS_READ = 2**20  # bytes up to which the ratio does not matter


def is_zip(path: Path) -> bool:
    return path.is_file() and (path.suffix.lower() == ".zip" or zipfile.is_zipfile(path))


def entries_of_zip(path: Path) -> tuple[list[tuple[tuple[str, ...], ImageFile]], list[Refusal]]:
    """Each file with the folders that lead to it, and what was refused."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UnusableSource(f"{path} cannot be read as a zip: {error}") from error
    if len(archive.infolist()) > MAX_FILES:
        raise UnusableSource(f"{path} holds more than {MAX_FILES:,} files")
    found: list[tuple[tuple[str, ...], ImageFile]] = []
    refused: list[Refusal] = []
    seen: set[str] = set()
    for info in archive.infolist():
        if info.is_dir():
            continue
        name = _name(info)
        shown = f"{path}/{name}"
        reason = "another file of the zip has the same name" if name in seen else _why_refused(info, name)
        seen.add(name)
        if reason:
            refused.append(Refusal(shown, reason))
        else:
            found.append((PurePosixPath(name).parts, ImageFile(shown, partial(_read, archive, info))))
    return found, refused


def _name(info: zipfile.ZipInfo) -> str:
    """Some programs write UTF-8 and do not say so."""
    if info.flag_bits & UTF8:
        return info.filename
    try:
        return info.filename.encode("cp437").decode()
    except UnicodeError:
        return info.filename


def _why_refused(info: zipfile.ZipInfo, name: str) -> str | None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive or not path.parts:
        return "its path leads out of the zip"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "it is a link"
    if info.flag_bits & 1:
        return "it is encrypted"
    if info.file_size > MAX_BYTES:
        return f"it has more than {MAX_BYTES // 2**20} MB"
    if info.file_size > ALWAYS_READ and info.file_size > MAX_RATIO * info.compress_size:
        return "it unpacks to more than a hundred times its size"
    return None


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """At most as many bytes as the zip says that there are, which were checked."""
    try:
        with archive.open(info) as stream:
            return not_empty(stream.read(MAX_BYTES))
    except Unreadable:
        raise
    except Exception as error:  # of zipfile, of the file system, and each compressor has its own
        raise Unreadable(f"the zip is damaged there: {error}") from error
