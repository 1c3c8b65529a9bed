"""`protoquad worker`: runs sessions as it finds them in the table."""

import contextlib
import os
from typing import Annotated

import typer

from migrations import schema
from protoquad import logs
from protoquad.plain_errors import plain_errors, settings
from store.database import Database

NICENESS = 10  # beside an API on the same machine: learning can wait, an answer cannot


def worker(
    parent: Annotated[int | None, typer.Option(hidden=True, help="Stop when this process is gone.")] = None,
) -> None:
    """Run sessions: claim, learn, measure, publish. As many workers as wanted may run, on any machine."""
    with plain_errors():
        chosen = settings()
        logs.set_up(chosen)
        if parent is not None:
            os.nice(NICENESS)
        from workers.loop import work  # after the environment is settled: torch reads it when it is imported

        database = Database(chosen.url)
        with contextlib.closing(database):
            schema.require_current(database)
            work(database, chosen, parent=parent)


def migrate() -> None:
    """Bring the database's tables to this release. Safe to run again, and by several at once."""
    with plain_errors():
        chosen = settings()
        database = Database(chosen.url)
        with contextlib.closing(database):
            before = schema.current(database)
            schema.upgrade(database)
            after = schema.current(database)
        typer.echo(f"the database is at {after}" + ("" if before == after else f" (it was at {before or 'nothing'})"))
