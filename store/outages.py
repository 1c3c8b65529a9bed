"""Which database errors are outages, which pass or which an operator ends, and which are faults.

After an outage the same request may succeed, so the caller is asked to try again. Anything else fails however often it
is tried, so it is counted as a failure and reported. The drivers' error codes decide, never their texts.
"""

import sqlite3
import traceback

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

LONGEST_SUMMARY = 300  # characters

# https://www.sqlite.org/rescode.html; the low byte of an extended code is its primary one.
_SQLITE_OUTAGES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PROTOCOL,  # lost the race for a lock too often
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,  # the disk was mounted again, read-only
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
}
_SQLITE_PRIMARY = 0xFF
# https://www.postgresql.org/docs/current/errcodes-appendix.html; each is the beginning of a code.
_POSTGRESQL_OUTAGES = (
    "08",  # connection exception
    "25006",  # read-only: this server has become a standby
    "25P03",  # a transaction was idle for too long
    "25P04",  # a transaction took too long
    "40",  # deadlocks and transactions that cannot be serialised
    "53",  # no connection, memory or disk left
    "55P03",  # a lock is not available
    "57014",  # a statement took too long
    "57P",  # shutting down, starting, or crashed
    "58030",  # the server's disk fails
)
# SQLite reports an exhausted quota as a failed write.
_SQLITE_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_POSTGRESQL_FULL = "53100"


def is_outage(error: BaseException) -> bool:
    """Whether the database is unreachable, busy or out of a resource; otherwise the statement itself is wrong."""
    if isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return True
    cause = _driver_error(error)
    if (number := getattr(cause, "sqlite_errorcode", None)) is not None:
        return number & _SQLITE_PRIMARY in _SQLITE_OUTAGES
    if (state := getattr(cause, "sqlstate", None)) is not None:
        return str(state).startswith(_POSTGRESQL_OUTAGES)
    # If no server answered (refused, cut off, closed), psycopg's error has no code.
    return hasattr(cause, "sqlstate") and isinstance(error, OperationalError | InterfaceError)


def is_full(error: BaseException) -> bool:
    """Whether the database's disk is full, which is an outage too."""
    cause = _driver_error(error)
    full = getattr(cause, "sqlite_errorcode", None) in _SQLITE_FULL
    return full or getattr(cause, "sqlstate", None) == _POSTGRESQL_FULL


def summary(error: BaseException) -> str:
    """One line from the driver. SQLAlchemy's own text repeats the statement and its parameters, including images."""
    cause = _driver_error(error)
    return f"{type(cause).__name__}: {str(cause).partition(chr(10))[0][:LONGEST_SUMMARY]}"


def frames(error: BaseException) -> str:
    """Where it happened: a traceback without the errors' texts."""
    return "".join(traceback.format_tb(error.__traceback__))


def _driver_error(error: BaseException) -> BaseException:
    return getattr(error, "orig", None) or error
