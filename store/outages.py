"""Which database errors are outages, that end by themselves or by an operator's hand, and which are faults.

An outage is nobody's fault and worth another try: whoever was refused is asked to come back. Anything else fails again
however often it is tried, so it has to be counted and told. Drivers' error codes decide, never their texts.
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
    sqlite3.SQLITE_READONLY,  # a disk that was mounted again, read-only
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
}
_SQLITE_PRIMARY = 0xFF
# https://www.postgresql.org/docs/current/errcodes-appendix.html; each is the beginning of a code.
_POSTGRESQL_OUTAGES = (
    "08",  # connection exception
    "25006",  # read-only: this server has become a standby
    "25P03",  # it gave up on a transaction that was silent for too long
    "25P04",  # or that took too long
    "40",  # deadlocks and transactions that cannot be put in order
    "53",  # no connection, memory or disk left
    "55P03",  # a lock is not available
    "57014",  # a statement took too long
    "57P",  # shutting down, starting, or crashed
    "58030",  # the server's disk fails
)
# SQLite calls a quota that is used up a failed write.
_SQLITE_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_POSTGRESQL_FULL = "53100"


def is_outage(error: BaseException) -> bool:
    """Whether the database is away, busy or out of something, rather than asked for what it cannot do."""
    if isinstance(error, PoolTimeout) or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return True
    cause = _driver_error(error)
    if (number := getattr(cause, "sqlite_errorcode", None)) is not None:
        return number & _SQLITE_PRIMARY in _SQLITE_OUTAGES
    if (state := getattr(cause, "sqlstate", None)) is not None:
        return str(state).startswith(_POSTGRESQL_OUTAGES)
    # psycopg has no code from the server where none answered: refused, cut off or closed.
    return hasattr(cause, "sqlstate") and isinstance(error, OperationalError | InterfaceError)


def is_full(error: BaseException) -> bool:
    """Whether the database's disk is full; that is an outage too."""
    cause = _driver_error(error)
    full = getattr(cause, "sqlite_errorcode", None) in _SQLITE_FULL
    return full or getattr(cause, "sqlstate", None) == _POSTGRESQL_FULL


def summary(error: BaseException) -> str:
    """One line of the driver's own. SQLAlchemy's text repeats the statement and its parameters, images and all."""
    cause = _driver_error(error)
    return f"{type(cause).__name__}: {str(cause).partition(chr(10))[0][:LONGEST_SUMMARY]}"


def frames(error: BaseException) -> str:
    """Where it happened: a traceback without the texts of the errors."""
    return "".join(traceback.format_tb(error.__traceback__))


def _driver_error(error: BaseException) -> BaseException:
    return getattr(error, "orig", None) or error
