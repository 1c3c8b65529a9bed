"""The database that the settings name, with this release's tables in it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from migrations import schema
from store.database import Database
from store.settings import Settings


@contextmanager
def ready_database(chosen: Settings) -> Iterator[Database]:
    """The embedded one is migrated on the way; another is its administrator's to migrate."""
    with closing(Database(chosen.url)) as database:
        if chosen.embedded:
            schema.upgrade(database)
        else:
            schema.require_current(database)
        yield database
