"""`protoquad export` and `protoquad import`: a model as one file, to keep or to move."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from learners.archive_export import exported
from learners.archive_import import Checked, checked
from protoquad.plain_errors import plain_errors, settings
from protoquad.progress_bar import progress_bar
from protoquad.ready_database import ready_database
from protoquad.whole_files import embedded_file, plain_file_errors, put_in_place, require_place
from store import archive, classes, names
from store.database import Database
from store.models import Model
from store.row_progress import Progress
from store.settings import Settings

MEGABYTE = 2**20


def export(
    model: Annotated[str, typer.Argument(help="The model to write.")],
    file: Annotated[Path, typer.Argument(help="Where to; the folder must exist.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write a model with all its versions, classes and images to one file. The service may run meanwhile."""
    with plain_errors("stopped; no archive was written"), plain_file_errors(file):
        chosen = settings()
        require_place(file, embedded_file(chosen), force=force)
        with ready_database(chosen) as database, progress_bar("exporting") as progress:
            _export(database, model, file.resolve(), progress, force=force)
        _print(f"model '{model}' is in {file} ({file.stat().st_size / MEGABYTE:,.1f} MB)")


def import_(
    file: Annotated[Path, typer.Argument(help="What `protoquad export` wrote.")],
    model: Annotated[
        str | None, typer.Option(help="Name it here; its own name unless set.", show_default=False)
    ] = None,
) -> None:
    """Read a model from a file. It answers as it did where it was exported; the file is left as it is."""
    with plain_errors("stopped; nothing was imported"), plain_file_errors(file):
        chosen = settings()
        wanted = None if model is None else names.model_name(model)
        with _checked(file, chosen) as found, ready_database(chosen) as database:
            with progress_bar("importing") as progress:
                arrived = archive.read(found.path, database, wanted or found.model, progress)
            _summarise(database, arrived)


def _export(database: Database, model: str, file: Path, progress: Progress, *, force: bool) -> None:
    """Written to a temporary file first and renamed once it is complete."""
    with exported(database, model, file.parent, progress) as path:
        put_in_place(path, file, force=force)


@contextmanager
def _checked(file: Path, chosen: Settings) -> Iterator[Checked]:
    with ExitStack() as held:
        with progress_bar("checking") as progress:
            found = held.enter_context(checked(file, chosen, progress))
        yield found


def _summarise(database: Database, model: Model) -> None:
    with database.read() as db:
        number, waiting = classes.count(db, model.id), len(classes.waiting(db, model.id))
    _print(f"model '{model.name}' is here: version {model.head}, {number} {'class' if number == 1 else 'classes'}")
    if waiting:
        _print(f"{waiting} of them will be refined by the session that is queued now")


def _print(line: str) -> None:
    Console().print(line, highlight=False, markup=False, soft_wrap=True)
