"""A folder of class folders, the input of a base session: names and files, nothing decoded yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Protocol, TypeVar

from core.errors import ProtoquadError
from store import names
from store.errors import UnusableName

MIN_IMAGES = 2  # one image does not show what the images of a class have in common


class FolderError(ProtoquadError):
    """A base session cannot use the folder as it is."""


class ImageFile(Protocol):
    """A file of a folder, or one in a zip. As text it is what a person calls it."""

    def read_bytes(self) -> bytes: ...


@dataclass(frozen=True)
class ClassFolder:
    """One class: its name as it is stored, and its files in the order of their names."""

    name: str
    files: tuple[ImageFile, ...]


Folder = TypeVar("Folder", bound=PurePath)


def read_folder(directory: Path) -> list[ClassFolder]:
    """Every sub-folder with the files directly in it, whatever their extension. Hidden files are ignored."""
    if not directory.is_dir():
        problem = "is a file" if directory.exists() else "does not exist"
        raise FolderError(f"{directory} {problem}; give a folder that holds one folder of images for each class")
    folders = [entry for entry in _visible(directory) if entry.is_dir()]
    if not folders:
        raise FolderError(
            f"{directory} holds no folders; put the images of each class in a folder that has the class's name"
        )
    by_name = by_class_name(folders)
    found = [ClassFolder(name, tuple(file for file in _visible(at) if file.is_file())) for name, at in by_name.items()]
    require_enough({folder.name: len(folder.files) for folder in found})
    return found


def require_enough(readable: Mapping[str, int], skipped: int = 0) -> None:
    """Raises FolderError unless every class has two images. The error names all that have not."""
    lines = [
        f"{', '.join(short)} {'has' if len(short) == 1 else 'have'} {amount}"
        for count, amount in ((0, "no image that can be read"), (1, "only one"))
        if (short := sorted(f"'{name}'" for name, number in readable.items() if number == count))
    ]
    if lines:
        unread = f" ({skipped} files could not be read)" if skipped else ""
        raise FolderError(
            f"a class needs at least {MIN_IMAGES} images: {'; '.join(lines)}{unread}. "
            "Add images to these folders or remove the folders"
        )


def _visible(directory: Path) -> Iterable[Path]:
    return sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))


def by_class_name(folders: Sequence[Folder]) -> dict[str, Folder]:
    """The folders by the names of their classes; raises FolderError if one cannot name a class, or two name one."""
    found: dict[str, Folder] = {}
    for folder in folders:
        try:
            name = names.class_name(folder.name)
        except UnusableName as error:
            raise FolderError(f"the folder {folder} cannot name a class: {error}") from error
        if name in found:
            raise FolderError(f"{found[name]} and {folder} name the same class '{name}'; merge them or rename one")
        found[name] = folder
    return found
