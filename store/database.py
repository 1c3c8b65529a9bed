"""Connections and transactions, the same on PostgreSQL and on SQLite.

A transaction that writes says so at its start. SQLite then takes its one write lock at once (`BEGIN IMMEDIATE`): a
transaction that reads first and writes later would fail, whatever its timeout.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, func, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import InternalError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from store.write_ahead_log import WriteAheadLog

BUSY_SECONDS = 30  # how long a writer waits for another on SQLite
SECONDS_TO_CONNECT = 5
POOL_SIZE = 10  # connections to PostgreSQL, and as many more for a short time
# A machine that freezes or disappears in the middle of a transaction keeps its locks until PostgreSQL ends the
# transaction. By default that takes two hours, in which nobody could teach the model or take over its session.
IDLE_SECONDS = 60
OWNER_ONLY_FOLDER, OWNER_ONLY_FILE = 0o700, 0o600  # a database holds every stored image, and digests of keys
# `PRAGMA user_version` of a file in which everything that was ever deleted has been overwritten. Files of earlier
# releases have 0: deleted images may still be in their free pages until they are rebuilt (`VACUUM`).
OVERWRITES_DELETED = 1

_ERASED = "images_erased"
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}  # these pass; a full disk does not
_creating = threading.Lock()


class Database:
    """One engine for the whole process."""

    def __init__(self, url: str, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self.url = url
        self.idle_seconds = idle_seconds
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        file = sqlite_file(url)
        self.write_ahead_log = WriteAheadLog(file) if file else None
        if self.is_sqlite:
            if file:
                _create_for_owner_only(file)
            self.engine = create_engine(
                url,
                hide_parameters=True,  # error texts would contain images
                connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
            )
            event.listen(self.engine, "connect", _set_up_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            self.engine = create_engine(
                url,
                hide_parameters=True,
                pool_size=POOL_SIZE,
                max_overflow=POOL_SIZE,
                pool_pre_ping=True,  # after a restart of the server no request fails
                connect_args={"connect_timeout": SECONDS_TO_CONNECT},
            )
        self._closed = False
        event.listen(self.engine, "checkin", self._close_late_connection)
        self._writer: Engine = self.engine.execution_options(writes=True)
        # By default each statement of PostgreSQL sees another moment, and reading a bank takes several statements.
        snapshot = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reader: Engine = self.engine.execution_options(**snapshot)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A consistent snapshot; changes are not kept, because it ends without a commit."""
        with Session(self._reader, expire_on_commit=False) as db:
            yield db

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction: commits everything at its end, or nothing if an exception leaves the block."""
        with _outages_recognised(), Session(self._writer, expire_on_commit=False) as db, db.begin():
            if not self.is_sqlite:
                db.execute(_LIMIT_IDLENESS, {"limit": f"{1000 * self.idle_seconds:.0f}ms"})
            yield db
        if self.write_ahead_log and db.info.get(_ERASED):
            self.write_ahead_log.truncate_soon()

    def close(self) -> None:
        """Close all connections; one that another thread uses is closed as soon as that thread is done with it."""
        self._closed = True
        self.engine.dispose()
        if self.write_ahead_log:
            self.write_ahead_log.close()

    def _close_late_connection(self, _: Any, record: ConnectionPoolEntry) -> None:
        if self._closed:
            record.invalidate()


_LIMIT_IDLENESS = text("SELECT set_config('idle_in_transaction_session_timeout', :limit, true)")


@contextmanager
def _outages_recognised() -> Iterator[None]:
    """A transaction that PostgreSQL ended because it was idle is a lost connection, not a faulty statement."""
    try:
        yield
    except InternalError as error:
        if not error.connection_invalidated or error.orig is None:
            raise
        raise OperationalError(
            error.statement, error.params, error.orig, hide_parameters=True, connection_invalidated=True
        ) from error


def sqlite_file(url: str) -> Path | None:
    """The file that a URL names; None for PostgreSQL."""
    parsed = make_url(url)
    on_disk = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:")
    return Path(str(parsed.database)) if on_disk else None


def images_erased(db: Session) -> None:
    """Call this in a transaction that deletes images: after the commit the write-ahead log is truncated too."""
    db.info[_ERASED] = True


def _create_for_owner_only(file: Path) -> None:
    """Create the folder and the file unless they exist. SQLite gives the files beside it the mode of this one.

    They have their mode from the start: a process that opens a file while others may read it can keep it open.
    """
    file.parent.mkdir(OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    # One thread at a time: closing a file releases all locks of this process on it, including those of other threads'
    # connections. A thread that waited here finds the file and does not open it.
    with _creating:
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY_FILE))
        except FileExistsError:
            if file.stat().st_size:
                return
        with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection:
            connection.execute(f"PRAGMA user_version = {OVERWRITES_DELETED}")


def batched(items: Sequence[int], size: int = 5_000) -> Iterator[Sequence[int]]:
    """Slices of at most `size` items: the number of parameters of a statement is limited."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def now(db: Session) -> datetime:
    """The time by the database's clock, which all machines share."""
    if db.get_bind().dialect.name == "sqlite":
        return datetime.fromtimestamp(time.time(), UTC)
    moment: datetime = db.execute(select(func.clock_timestamp())).scalar_one()
    return moment.astimezone(UTC)


def _set_up_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy begins transactions, not the driver
    pragmas = (f"busy_timeout = {BUSY_SECONDS}000", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON")
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    _use_write_ahead_log(connection)


def _use_write_ahead_log(connection: Any) -> None:
    """SQLite does not wait here: if several connections open a new file at once, all but one would fail."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
