"""A model written to an archive, whole or not at all."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from migrations import schema
from store import archive
from store.database import Database
from store.row_progress import Progress, no_progress


@contextmanager
def exported(database: Database, model: str, folder: Path, progress: Progress = no_progress) -> Iterator[Path]:
    """The archive in a temporary folder within `folder`, where the caller may open or rename it."""
    with TemporaryDirectory(dir=folder, prefix=".protoquad-export-") as own:
        path = Path(own) / "archive"
        with closing(Database(f"sqlite:///{path}")) as empty:
            schema.upgrade(empty)
        archive.write(database, model, path, progress)
        yield path
