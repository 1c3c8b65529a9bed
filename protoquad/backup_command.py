"""`protoquad backup`: a consistent copy of the embedded database, while the service runs.

Not a plain copy of its file: the latest writes are in a second file beside it, and copying both gives two moments.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from protoquad.plain_errors import Refused, plain_errors, settings
from protoquad.progress_bar import progress_bar
from protoquad.whole_files import embedded_file, plain_file_errors, put_in_place, require_place
from store.database import BUSY_SECONDS, OVERWRITES_DELETED, OWNER_ONLY_FILE
from store.integrity import DamagedImage, damaged_images_in

SHOWN = 20  # damaged images that are named; the rest is a number


def backup(
    file: Annotated[Path, typer.Argument(help="Where to; the folder must exist.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write the whole embedded database to one file, and check every image in it. The service may run meanwhile.

    Exits with 1 if the file was written but holds damaged images, which are listed.
    """
    with plain_errors("stopped; no backup was written"), plain_file_errors(file):
        database = embedded_file(settings())
        if database is None:
            raise Refused("PROTOQUAD_DATABASE_URL names a PostgreSQL database; back it up with pg_dump instead")
        require_place(file, database, force=force)
        with TemporaryDirectory(dir=file.resolve().parent, prefix=".protoquad-backup-") as folder:
            written = Path(folder) / "backup"
            _copy(database, written)
            damaged = _damaged_images(written)
            put_in_place(written, file.resolve(), force=force)
        typer.echo(f"{database} is in {file}")
        if damaged:
            _warn(damaged)
            raise typer.Exit(1)


def _damaged_images(file: Path) -> list[DamagedImage]:
    with progress_bar("checking images") as progress:
        return damaged_images_in(file, progress)


def _warn(damaged: list[DamagedImage]) -> None:
    """The backup is kept: everything else in it is sound, and there may be no better one."""
    typer.echo(
        f"warning: {len(damaged)} of the images in it are damaged, in the database itself too: their bytes are not "
        "those that were taught. Keep earlier backups; delete these classes and teach them again:",
        err=True,
    )
    for image in damaged[:SHOWN]:
        typer.echo(f"  {image}", err=True)
    if len(damaged) > SHOWN:
        typer.echo(f"  and {len(damaged) - SHOWN:,} more", err=True)


def _copy(database: Path, file: Path) -> None:
    """Whichever release made its tables: a backup before an upgrade must not itself upgrade."""
    file.touch(OWNER_ONLY_FILE)
    try:
        with closing(sqlite3.connect(database, timeout=BUSY_SECONDS)) as source:
            # One snapshot, without free pages: those may still hold images that were deleted.
            source.execute("VACUUM INTO ?", (str(file),))
        with closing(sqlite3.connect(file)) as copy:
            (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            copy.execute(f"PRAGMA user_version = {OVERWRITES_DELETED}")  # a copy has no free pages to hold anything
    except sqlite3.Error as error:
        raise Refused(f"{database} cannot be read whole: {error}") from error
    if found != "ok":
        raise Refused(f"the copy of {database} is not sound: {found}")
    with file.open("rb") as copied:  # SQLite itself does not wait for the disk here
        os.fsync(copied.fileno())
