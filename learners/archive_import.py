"""An archive to import: checked whole, and migrated to this release, before any of it reaches the database."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.exc import SQLAlchemyError

from learners.archive_content import ArchiveContent
from migrations import schema
from store import archive
from store.archive import Label
from store.archive_file import Flaw
from store.database import Database
from store.errors import SchemaMismatch, UnusableArchive
from store.row_progress import Progress, no_progress
from store.settings import Settings


@dataclass(frozen=True)
class Checked:
    """An archive that may be read."""

    path: Path  # has this release's tables
    model: str  # the name that it was exported under


@contextmanager
def checked(file: Path, settings: Settings, progress: Progress = no_progress) -> Iterator[Checked]:
    """Raises `UnusableArchive` or `SchemaMismatch` before anything is written. The file is not changed."""
    label = archive.label(file)
    try:
        content = ArchiveContent(label.backbone, settings)
    except Flaw as flaw:
        raise UnusableArchive(f"{file} cannot be imported: {flaw}") from flaw
    with _up_to_date(file, label, settings, content) as path:
        try:
            archive.check(path, settings, content, progress)
        except UnusableArchive as error:  # name the file that the user gave, not the copy
            raise UnusableArchive(str(error).replace(str(path), str(file))) from error
        yield Checked(path, label.model)


@contextmanager
def _up_to_date(file: Path, label: Label, settings: Settings, content: ArchiveContent) -> Iterator[Path]:
    """The archive with this release's tables: the file itself, or a temporary copy."""
    if label.revision == schema.head():
        yield file
        return
    if not schema.knows(label.revision):
        raise SchemaMismatch(
            f"{file} was written by a newer release: its schema is {label.revision}, this release knows "
            f"{schema.head()} and older; install that release here first"
        )
    settings.home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=settings.home, prefix=".protoquad-import-") as folder:
        path = Path(folder) / "archive"
        try:
            with closing(Database(f"sqlite:///{path}")) as fresh:
                schema.upgrade(fresh, label.revision)
            archive.settle(path)
            archive.rebuild(file, path, settings, content)
            with closing(Database(f"sqlite:///{path}")) as older:
                schema.upgrade(older)
        except SQLAlchemyError as error:
            raise UnusableArchive(f"{file} cannot be brought up to date; export the model again") from error
        archive.settle(path)
        archive.seal(path)
        yield path
