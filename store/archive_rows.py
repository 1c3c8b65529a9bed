"""Rows of an archive: each value has the type of its column here, otherwise a `Flaw` is raised.

SQLite stores any type in any column, so every value must be checked. Checking an archive and copying it read its rows
through the same function: nothing is copied that was not checked.
"""

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Integer, LargeBinary, String, Table
from sqlalchemy.types import TypeEngine

from store.archive_file import Flaw
from store.table_base import Moment

LARGEST_JSON = 2 * 2**20  # bytes: a rollback lists the classes that it left out, a hundred thousand at most
DEEPEST_JSON = 20
LARGEST_COUNT = 2**30  # half of what an INTEGER of PostgreSQL holds, so that the model can go on counting
LARGEST_ID = 2**63 - 1
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SHOWN = 40


def rows(connection: sqlite3.Connection, table: Table) -> Iterator[dict[str, Any]]:
    """The rows in the order in which they were written, one at a time."""
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    found = connection.execute(f'SELECT {names} FROM "{table.name}" NOT INDEXED ORDER BY rowid')
    readers = [(column.name, _reader(column)) for column in table.columns]
    for number, values in enumerate(found, start=1):
        try:
            yield {name: read(value) for (name, read), value in zip(readers, values, strict=True)}
        except _Unfit as unfit:
            raise Flaw(f"row {number} of its table '{table.name}': {unfit}") from None


class _Unfit(ValueError):
    """A value that its column cannot have."""


def _reader(column: Column[Any]) -> Callable[[Any], Any]:
    read = _reader_of_type(column.type)

    def checked(value: Any) -> Any:
        if value is None and column.nullable:
            return None
        try:
            return read(value)
        except _Unfit as unfit:
            raise _Unfit(f"{column.name} is {_shown(value)}; {unfit}") from None

    return checked


def _reader_of_type(kind: TypeEngine[Any]) -> Callable[[Any], Any]:
    match kind:
        case Integer():
            most = LARGEST_ID if isinstance(kind, BigInteger) else LARGEST_COUNT
            return _exactly(int, lambda value: 0 <= value <= most, f"a whole number of 0 to {most}")
        case String(length=int(longest)):
            words = f"a text of at most {longest} characters without control characters"
            return _exactly(str, lambda value: len(value) <= longest and not _CONTROL.search(value), words)
        case Float():
            return _exactly(float, math.isfinite, "a finite number")
        case LargeBinary():
            return _exactly(bytes, lambda _: True, "bytes")
        case Boolean():
            return _boolean
        case Moment():
            return _moment
        case JSON():
            return _json
    raise TypeError(f"archives have no columns of type {kind}")


def _exactly(kind: type, fits: Callable[[Any], object], words: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind or not fits(value):
            raise _Unfit(f"it must be {words}")
        return value

    return read


def _boolean(value: Any) -> bool:
    if type(value) is not int or value not in (0, 1):
        raise _Unfit("it must be 0 or 1")
    return bool(value)


def _moment(value: Any) -> datetime:
    if type(value) is str and _MOMENT.fullmatch(value):
        try:
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        except ValueError:
            pass
    raise _Unfit("it must be a time as in 2026-01-31 12:00:00.000000")


def _json(value: Any) -> dict[str, Any]:
    if type(value) is not str or len(value) > LARGEST_JSON:
        raise _Unfit(f"it must be a JSON object of at most {LARGEST_JSON} characters")
    try:
        found = json.loads(value, parse_constant=_no_constant)
        if not isinstance(found, dict):
            raise _Unfit("it must be a JSON object")
        _require_plain(found, DEEPEST_JSON)
    except RecursionError:
        raise _Unfit(f"it is nested deeper than {DEEPEST_JSON}") from None
    except ValueError as error:
        raise _Unfit(f"it cannot be read as JSON ({error})") from None
    return found


def _require_plain(value: Any, depth: int) -> None:
    """Only what an answer can contain: no infinity, no half of a surrogate pair, no numbers beyond 64 bits."""
    if depth < 0:
        raise ValueError(f"nested deeper than {DEEPEST_JSON}")
    if isinstance(value, dict):
        for inner in (*value.keys(), *value.values()):
            _require_plain(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _require_plain(inner, depth - 1)
    elif isinstance(value, str) and _CONTROL.search(value):
        raise ValueError("control characters")
    elif isinstance(value, int | float) and not abs(value) <= LARGEST_ID:  # true for NaN, too
        raise ValueError("a number that is not finite, or of more than 64 bits")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _shown(value: Any) -> str:
    """The part of a value that an error repeats."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str):
        return ascii(value[:_SHOWN]) + ("…" if len(value) > _SHOWN else "")
    return "null" if value is None else repr(value)
