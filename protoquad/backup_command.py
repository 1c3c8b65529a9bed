"""`protoquad backup`: the embedded database as it is at one moment, while the service runs.

Not a copy of its file: what was written last stands in a second file beside it, and a copy of both is of two moments.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from protoquad.plain_errors import Refused, plain_errors, settings
from protoquad.whole_files import embedded_file, plain_file_errors, put_in_place, require_place
from store.database import BUSY_SECONDS

OWNER_ALONE = 0o600  # it holds every picture that was taught, and the digests of the keys


def backup(
    file: Annotated[Path, typer.Argument(help="Where to; the folder must exist.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write the whole embedded database to one file. The service may run meanwhile; nothing waits for it."""
    with plain_errors("stopped; no backup was written"), plain_file_errors(file):
        database = embedded_file(settings())
        if database is None:
            raise Refused("PROTOQUAD_DATABASE_URL names a PostgreSQL database; back it up with pg_dump instead")
        require_place(file, database, force=force)
        with TemporaryDirectory(dir=file.resolve().parent, prefix=".protoquad-backup-") as folder:
            written = Path(folder) / "backup"
            _copy(database, written)
            put_in_place(written, file.resolve(), force=force)
        typer.echo(f"{database} is in {file}")


def _copy(database: Path, file: Path) -> None:
    """As it stands, whichever release made its tables: a backup before an upgrade must not be the upgrade."""
    file.touch(OWNER_ALONE)
    try:
        with closing(sqlite3.connect(database, timeout=BUSY_SECONDS)) as source:
            # One snapshot, and only what is there: a page copied as it is may hold a picture that was deleted.
            source.execute("VACUUM INTO ?", (str(file),))
        with closing(sqlite3.connect(file)) as copy:
            (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise Refused(f"{database} cannot be read whole: {error}") from error
    if found != "ok":
        raise Refused(f"the copy of {database} is not sound: {found}")
    with file.open("rb") as copied:  # SQLite itself does not wait for the disk here
        os.fsync(copied.fileno())
