"""The home folder and the database file in it: are they usable, and readable by their owner only?

All checks run before the database is opened: SQLite's own messages ("unable to open database file") do not say what is
wrong, and opening another program's database would already change it.
"""

import os
import shlex
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

from protoquad.plain_errors import Refused
from store.database import BUSY_SECONDS, OVERWRITES_DELETED, OWNER_ONLY_FILE, OWNER_ONLY_FOLDER

OTHERS = 0o077  # every right of the group and of everybody else
BESIDE = ("", "-wal", "-shm")  # the files of an SQLite database


def make_home(home: Path) -> None:
    """Readable by its owner only; an existing folder is not changed."""
    try:
        home.mkdir(OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    except FileExistsError:
        what = "a broken link" if home.is_symlink() and not home.exists() else "a file"
        raise Refused(f"{home.absolute()} is {what}, not a folder; move it, or set PROTOQUAD_HOME") from None
    except OSError as error:
        raise Refused(
            f"the folder {home.absolute()} cannot be created: {error.strerror}; set PROTOQUAD_HOME to another"
        ) from error
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        raise Refused(
            f"the folder {home.absolute()} cannot be written to by this user; "
            "run as its owner, or set PROTOQUAD_HOME to another"
        )


def require_database(file: Path) -> None:
    """Raise unless there is a file that this user may read and write."""
    if not file.exists():
        raise Refused(
            f"there is no database at {file}; set PROTOQUAD_HOME to the folder that holds it, "
            "or create one with `protoquad migrate`"
        )
    if not file.is_file():
        raise Refused(f"{file} is not a file; move it away, or set PROTOQUAD_HOME to another folder")
    if not os.access(file, os.R_OK | os.W_OK):
        raise Refused(f"{file} cannot be read and written by this user; run as its owner, or correct its mode")


def require_own_database(file: Path) -> None:
    """Raise if an existing file is not a database of protoquad."""
    try:
        with closing(_opened(file)) as connection:
            found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        raise Refused(unusable(file, error)) from error
    if found and "alembic_version" not in found:
        raise Refused(
            f"{file} is the database of another program: it has tables such as '{min(found)}' and none of protoquad's; "
            "set PROTOQUAD_HOME to another folder"
        )


def unusable(file: Path, error: BaseException) -> str:
    """What SQLite found wrong with a file, as a sentence."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return f"{file} is not a database; move it away, or set PROTOQUAD_HOME to another folder"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"the database {file} is damaged ({error}); restore it from a backup"
    if code == sqlite3.SQLITE_FULL:
        return f"the database {file} cannot be written: the disk is full; make room on it"
    return (
        f"the database {file} cannot be used: {error}; check that its disk has room and that this user may write there"
    )


def too_open(home: Path, file: Path | None) -> list[Path]:
    """Which of the home folder and the database's files other users of this machine may read or change."""
    files = [Path(f"{file}{ending}") for ending in BESIDE] if file else []
    return [path for path in (home, *files) if path.exists() and stat.S_IMODE(path.stat().st_mode) & OTHERS]


def how_to_close(paths: list[Path]) -> str:
    """The commands that remove the rights of others."""
    folders = [shlex.quote(str(path.absolute())) for path in paths if path.is_dir()]
    files = [shlex.quote(str(path.absolute())) for path in paths if not path.is_dir()]
    commands = [f"chmod {OWNER_ONLY_FOLDER:o} {' '.join(folders)}"] if folders else []
    commands += [f"chmod {OWNER_ONLY_FILE:o} {' '.join(files)}"] if files else []
    return " && ".join(commands)


def close_to_others(paths: list[Path]) -> None:
    for path in paths:
        path.chmod(OWNER_ONLY_FOLDER if path.is_dir() else OWNER_ONLY_FILE)


def make_cache_home(home: Path) -> None:
    """For caches only, if the database is elsewhere: serving works without it."""
    with suppress(Refused):
        make_home(home)


def may_hold_deleted(file: Path) -> bool:
    """Whether images that an earlier release deleted may still be in the file's free pages."""
    with closing(_opened(file)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(version != OVERWRITES_DELETED and file.stat().st_size)


def overwrite_deleted(file: Path) -> None:
    """Rebuild the file. It needs its size again in free disk space, and blocks writers meanwhile."""
    with closing(_opened(file)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("VACUUM")
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise Refused(f"another program has {file.absolute()} open, so deleted images stay in it; stop it first")
        connection.execute(f"PRAGMA user_version = {OVERWRITES_DELETED}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def warnings(home: Path, file: Path | None) -> list[str]:
    """Warnings about the files of a home; each says what to do."""
    found = [open_to_others(home, file), deleted_but_present(file) if file else None]
    return [warning for warning in found if warning]


def open_to_others(home: Path, file: Path | None) -> str | None:
    paths = too_open(home, file)
    if not paths:
        return None
    names = ", ".join(str(path.absolute()) for path in paths)
    close = how_to_close(paths)
    return f"other users of this machine have rights to {names}: run `{close}`, or `protoquad doctor --fix`"


def deleted_but_present(file: Path) -> str | None:
    if not may_hold_deleted(file):
        return None
    return (
        f"images deleted by an earlier release may still be in free pages of {file}: "
        "stop the service and run `protoquad doctor --fix` once"
    )


def _opened(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)
