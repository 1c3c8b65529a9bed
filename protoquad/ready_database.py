"""The database that the settings name. What is wrong with it is a sentence that names it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from migrations import schema
from protoquad.home_folder import make_home, require_database, require_own_database, unusable
from protoquad.plain_errors import Refused, is_state_of_database
from store.database import Database, sqlite_file
from store.settings import Settings


@contextmanager
def ready_database(chosen: Settings, *, may_create: bool = True) -> Iterator[Database]:
    """With this release's tables: the embedded one is migrated on the way, another by its administrator."""
    with opened_database(chosen, may_create=may_create) as database:
        if chosen.embedded:
            schema.upgrade(database)
        else:
            schema.require_current(database)
        yield database


@contextmanager
def opened_database(chosen: Settings, *, may_create: bool) -> Iterator[Database]:
    """As it is. Unless it may be created, an embedded one that does not exist is refused."""
    file = sqlite_file(chosen.url)
    if file is not None:
        _require_usable(file, may_create=may_create)
    with _sentences(file), closing(Database(chosen.url)) as database:
        yield database


def _require_usable(file: Path, *, may_create: bool) -> None:
    if may_create:
        make_home(file.parent)
    if not may_create or file.exists():
        require_database(file)
        require_own_database(file)


@contextmanager
def _sentences(file: Path | None) -> Iterator[None]:
    """On SQLite an error names the file; PostgreSQL's own messages say where it is."""
    try:
        yield
    except sqlite3.Error as error:
        if file is None:
            raise
        raise Refused(unusable(file, error)) from error
    except DBAPIError as error:
        if file is None or error.orig is None or not is_state_of_database(error):
            raise
        raise Refused(unusable(file, error.orig)) from error
