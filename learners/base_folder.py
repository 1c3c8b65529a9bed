"""A folder of class folders, as a base session takes it: names and files, nothing decoded yet."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import ProtoquadError
from store.errors import UnusableName

FEWEST = 2  # one picture says nothing of what a class's pictures have in common

Clean = Callable[[str], str]  # a folder's name to a class's; raises UnusableName for one that cannot be used


class FolderError(ProtoquadError):
    """The folder cannot be learned from as it is."""


@dataclass(frozen=True)
class ClassFolder:
    """One class: its name as it will be stored, and its files in the order of their names."""

    name: str
    files: tuple[Path, ...]


def read_folder(directory: Path, clean: Clean) -> list[ClassFolder]:
    """Every sub-folder with the files directly in it, whatever their extension; what is hidden is passed over."""
    if not directory.is_dir():
        true = "is a file" if directory.exists() else "does not exist"
        raise FolderError(f"{directory} {true}; give a folder that holds one folder of pictures for each class")
    folders = [entry for entry in _visible(directory) if entry.is_dir()]
    if not folders:
        raise FolderError(
            f"{directory} holds no folders; put the pictures of each class in a folder that has the class's name"
        )
    named = _named(folders, clean)
    found = [ClassFolder(name, tuple(file for file in _visible(at) if file.is_file())) for name, at in named.items()]
    require_enough({folder.name: len(folder.files) for folder in found})
    return found


def require_enough(readable: Mapping[str, int], skipped: int = 0) -> None:
    """Raise unless every class has two pictures; names all that have not, so that one round puts them right."""
    lines = [
        f"{', '.join(short)} {'has' if len(short) == 1 else 'have'} {amount}"
        for count, amount in ((0, "no picture that can be read"), (1, "only one"))
        if (short := sorted(f"'{name}'" for name, number in readable.items() if number == count))
    ]
    if lines:
        unread = f" ({skipped} files could not be read)" if skipped else ""
        raise FolderError(
            f"a class needs at least {FEWEST} pictures: {'; '.join(lines)}{unread}. "
            "Add pictures to these folders or take the folders away"
        )


def _visible(directory: Path) -> Iterable[Path]:
    return sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))


def _named(folders: Sequence[Path], clean: Clean) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for folder in folders:
        try:
            name = clean(folder.name)
        except UnusableName as error:
            raise FolderError(f"the folder {folder} cannot name a class: {error}") from error
        if name in named:
            raise FolderError(f"{named[name]} and {folder} name the same class '{name}'; join them or rename one")
        named[name] = folder
    return named
