"""A folder or zip with one folder of images for each class, as torchvision's ImageFolder reads it."""

import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from protoquad_client.commands.image_files import (
    ImageFile,
    Refusal,
    UnusableSource,
    image_file,
    is_hidden,
    is_image_name,
)
from protoquad_client.commands.zip_files import entries_of_zip, is_zip


@dataclass(frozen=True)
class ClassFolder:
    """One class: its name as the service stores it, and its images in the order of their names."""

    name: str
    images: tuple[ImageFile, ...]


@dataclass(frozen=True)
class ClassFolders:
    classes: tuple[ClassFolder, ...]
    refused: tuple[Refusal, ...]  # images that belong to no class, and what a zip must not contain
    left_out: int  # files that are not images by their names


@dataclass(frozen=True)
class Entry:
    """A file by the folders that lead to it."""

    parts: tuple[str, ...]
    file: ImageFile


def read_class_folders(path: Path, limit: int | None = None) -> ClassFolders:
    """Names only; no image is read. With a limit, the first images of each class."""
    refused: list[Refusal] = []
    if path.is_dir():
        entries = list(_entries_of_folder(path, refused))
    elif is_zip(path):
        entries, refused = _from_zip(path)
    else:
        what = "is neither a folder nor a zip" if path.exists() else "does not exist"
        raise UnusableSource(f"{path} {what}; name a folder or zip that holds one folder of images for each class")
    images = [entry for entry in entries if is_image_name(entry.parts[-1])]
    grouped, alone = _by_class(_below_single_folder(images), path)
    refused += [Refusal(entry.file.shown, "it lies in no class folder") for entry in alone]
    classes = [ClassFolder(name, tuple(files[:limit])) for name, files in grouped.items()]
    return ClassFolders(tuple(classes), tuple(refused), len(entries) - len(images))


def class_name(text: str) -> str:
    """As the service stores it: trimmed and composed, so that names that look the same are the same."""
    return unicodedata.normalize("NFC", text.strip())


def _entries_of_folder(root: Path, refused: list[Refusal]) -> Iterator[Entry]:
    """Links are followed, but no folder is entered twice. Folders that cannot be listed are refused."""
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        refused.append(Refusal(str(error.filename), (error.strerror or str(error)).lower()))

    for folder, inside, files in os.walk(root, onerror=refuse, followlinks=True):
        about = Path(folder).stat()
        if (about.st_dev, about.st_ino) in seen:
            inside.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        inside[:] = sorted(name for name in inside if not is_hidden(name))
        at = Path(folder)
        for name in sorted(files):
            if not is_hidden(name):
                yield Entry((*at.relative_to(root).parts, name), image_file(at / name))


def _from_zip(path: Path) -> tuple[list[Entry], list[Refusal]]:
    found, refused = entries_of_zip(path)
    entries = [Entry(parts, file) for parts, file in found if not any(map(is_hidden, parts))]
    return sorted(entries, key=lambda entry: entry.parts), refused


def _below_single_folder(entries: Sequence[Entry]) -> Sequence[Entry]:
    """A zip of a folder begins with that folder's name, which is not a class's."""
    while entries and min(len(entry.parts) for entry in entries) > 2 and len({one.parts[0] for one in entries}) == 1:
        entries = [Entry(entry.parts[1:], entry.file) for entry in entries]
    return entries


def _by_class(entries: Sequence[Entry], path: Path) -> tuple[dict[str, list[ImageFile]], list[Entry]]:
    alone = [entry for entry in entries if len(entry.parts) == 1]
    inside = [entry for entry in entries if len(entry.parts) > 1]
    if not inside:
        raise UnusableSource(
            f"{path} holds no folders of images; put the images of each class in a folder that has the class's name"
        )
    if all(len(entry.parts) > 2 for entry in inside):  # train, test and the like
        names = sorted({entry.parts[0] for entry in inside})
        raise UnusableSource(
            f"the folders of {path} hold folders of images, not images; name one of them: {', '.join(names[:5])}"
        )
    grouped: dict[str, list[ImageFile]] = {}
    folders: dict[str, str] = {}
    for entry in inside:
        name = class_name(entry.parts[0])
        if folders.setdefault(name, entry.parts[0]) != entry.parts[0]:
            raise UnusableSource(f"two folders of {path} name the class '{name}'; merge them or rename one")
        grouped.setdefault(name, []).append(entry.file)
    return grouped, alone
