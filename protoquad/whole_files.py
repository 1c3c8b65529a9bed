"""Files that a command writes for a user: where they may go, and what is said when they cannot."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protoquad.home_folder import require_database, require_own_database
from protoquad.plain_errors import Refused
from store.database import sqlite_file
from store.settings import Settings


def embedded_file(chosen: Settings) -> Path | None:
    """The embedded database's file, which reading it does not bring into being; none on PostgreSQL."""
    file = sqlite_file(chosen.url)
    if file is not None:
        require_database(file)
        require_own_database(file)
    return file


def require_place(file: Path, database: Path | None, *, force: bool) -> None:
    if not file.parent.is_dir():
        raise Refused(f"the folder {file.parent} does not exist; make it first")
    if file.is_dir():
        raise Refused(f"{file} is a folder; name a file in it")
    if database is not None and file.exists() and file.samefile(database):
        raise Refused(f"{file} is the database itself; name another file")
    if file.exists() and not force:
        raise Refused(f"{file} exists already; name another file, or replace it with --force")


def put_in_place(written: Path, file: Path, *, force: bool) -> None:
    """Once it is whole, so that no half file is ever found; `written` lies on the same disk."""
    if file.exists() and not force:
        raise Refused(f"{file} came into being meanwhile; name another file, or replace it with --force")
    written.replace(file)


@contextmanager
def plain_file_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(f"{error.filename or file}: {error.strerror or error}") from error
