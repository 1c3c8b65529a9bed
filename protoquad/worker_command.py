"""`protoquad worker`: runs sessions as it finds them in the table."""

import os
from typing import Annotated

import structlog
import typer

from migrations import schema
from protoquad import logs
from protoquad.home_folder import make_cache_home, warnings
from protoquad.plain_errors import plain_errors, settings
from protoquad.quick_imports import quick_imports
from protoquad.ready_database import opened_database
from store.database import sqlite_file
from tracing.export import exporting

log = structlog.get_logger()

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
        if not chosen.embedded:
            make_cache_home(chosen.home)
        with opened_database(chosen, may_create=False) as database:
            schema.require_current(database)
            if parent is None:  # else the service that started this worker has said so
                for warning in warnings(chosen.home, sqlite_file(chosen.url)):
                    log.warning(warning)
            with quick_imports():
                from workers.loop import work  # after the environment is settled: torch reads it when it is imported

            with exporting(chosen.otlp_endpoint, "protoquad-worker"):
                work(database, chosen, parent=parent)


def migrate() -> None:
    """Bring the database's tables to this release; create the embedded database if there is none. Safe to run again."""
    with plain_errors():
        chosen = settings()
        file = sqlite_file(chosen.url)
        is_new = file is not None and not file.exists()
        with opened_database(chosen, may_create=True) as database:
            before = schema.current(database)
            schema.upgrade(database)
            after = schema.current(database)
        if is_new:
            typer.echo(f"made a new database in {file}")
        typer.echo(f"the database is at {after}" + ("" if before == after else f" (it was at {before or 'nothing'})"))
