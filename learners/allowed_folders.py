"""Which folders of this machine a base session may be asked to learn: those that its operator has allowed."""

from collections.abc import Sequence
from pathlib import Path

from learners.base_folder import ClassFolder, FolderError, read_folder
from store.settings import Settings

HOW = "list it in PROTOQUAD_BASE_FOLDERS of the service and of the workers"


def read_allowed(path: str, settings: Settings) -> list[ClassFolder]:
    """The class folders in `path`; raises FolderError unless all of it is inside an allowed folder, links included."""
    roots = [root.resolve() for root in settings.base_roots]
    if not roots:
        raise FolderError(f"no folder of this machine may be learned from; to allow one, {HOW}")
    folder = Path(path)
    if "\0" in path or not folder.is_absolute():
        raise FolderError(f"{path!a} is not an absolute path; write it from the root, as {roots[0]}")
    _require_inside(folder, roots)
    try:
        found = read_folder(folder)
    except OSError as error:
        raise FolderError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
    for one in found:
        for file in one.files:
            assert isinstance(file, Path)
            _require_inside(file, roots)
    return found


def _require_inside(path: Path, roots: Sequence[Path]) -> None:
    """Where it leads counts, not what it is called."""
    try:
        leads_to = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle; characters that no file can have
        raise FolderError(f"{str(path)!a} cannot be followed to a file or folder") from error
    if not any(leads_to.is_relative_to(root) for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise FolderError(f"{path} is not inside an allowed folder ({allowed}); to allow it, {HOW}")
