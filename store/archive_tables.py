"""The tables of an archive that is being checked: their columns, the rows of its one model, and the progress.

Memory is bounded: a table's values may be only as large as a model of this deployment could have written them.
"""

import sqlite3
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

from sqlalchemy import Table

from store.archive_file import Flaw, allow, require, shape
from store.archive_rows import LARGEST_JSON, rows
from store.bank_rows import COPIES
from store.models import Base
from store.row_progress import Progress
from store.settings import Settings

TABLES: dict[str, Table] = dict(Base.metadata.tables)
NOT_EXPORTED = (
    *("sessions", "session_events", "zip_parts", "api_keys", "idempotency_keys", "measurements", "samples"),
    *("webhooks", "deliveries"),
)
MOST_HELD_OUT = 2**16  # distances of one class
BYTES_OF_A_ROW = 64 * 1024  # without its large values
ROWS_BETWEEN_REPORTS = 50


class Content(Protocol):
    """Checks what needs torch or an image decoder; each method raises a `Flaw`."""

    dim: int  # numbers of an embedding
    largest_weights: int  # bytes of a set of weights

    def image(self, data: bytes) -> None:
        """Raises unless the image can be decoded."""

    def base(self, data: bytes | None) -> Any:
        """The weights of a base session; without data the pretrained ones of the backbone."""

    def refined(self, data: bytes, base: Any) -> None:
        """Raises unless the data are weights as a difference from `base`."""


def largest_value(settings: Settings, content: Content) -> int:
    """Bytes of the largest row that an archive may have."""
    return max(largest_row(table, settings, content) for table in ("versions", "shots", "weights", "prototypes"))


def largest_row(table: str, settings: Settings, content: Content) -> int:
    vector = 4 * content.dim
    return BYTES_OF_A_ROW + {
        "versions": 4 * LARGEST_JSON,  # characters of up to four bytes
        "shots": 2 * settings.max_request_bytes,  # a costly image is stored with a smaller copy
        "guard_images": settings.max_request_bytes,
        "weights": content.largest_weights,
        "prototypes": vector + 4 * MOST_HELD_OUT,
        "statistics": vector * (1 + COPIES),
    }.get(table, 0)


def require_tables(connection: sqlite3.Connection) -> None:
    """Raises a `Flaw` unless the archive has exactly this release's tables, and no rows in those not exported."""
    expected = {name: [column.name for column in table.columns] for name, table in TABLES.items()}
    expected["alembic_version"] = ["version_num"]
    found = shape(connection)
    for table in sorted(expected.keys() ^ found.keys()):
        raise Flaw(f"it {'has a' if table in found else 'lacks the'} table {table!a}; export the model again")
    for table, columns in expected.items():
        if sorted(found[table]) != sorted(columns):
            raise Flaw(f"its table '{table}' has other columns than this release's; export the model again")
    for table in NOT_EXPORTED:
        if connection.execute(f"SELECT 1 FROM {table} NOT INDEXED LIMIT 1").fetchone():
            raise Flaw(f"it contains {table}, which are never exported; export the model again")


class ArchiveTables:
    """Reads an archive row by row and reports the progress."""

    def __init__(
        self, connection: sqlite3.Connection, settings: Settings, content: Content, progress: Progress
    ) -> None:
        self.connection = connection
        self.settings = settings
        self.content = content
        self._progress = progress
        self._done = 0
        self.model = self._read_model()

    def _read_model(self) -> dict[str, Any]:
        allow(self.connection, BYTES_OF_A_ROW)
        number = self.count("models")
        if number != 1:
            raise Flaw(f"it contains {number} models and must contain one; export the model again")
        (row,) = rows(self.connection, TABLES["models"])
        self.row_done()
        return row

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """The rows of a table, which must all belong to the one model."""
        self.allow_rows_of(table)
        for row in rows(self.connection, TABLES[table]):
            if row.get("model_id", self.model["id"]) != self.model["id"]:
                raise Flaw(f"its table '{table}' has rows of another model; export the model again")
            if row.get("session_id") is not None:
                raise Flaw(f"its table '{table}' refers to sessions, which are never exported; export the model again")
            yield row
            self.row_done()

    def allow_rows_of(self, table: str) -> None:
        allow(self.connection, largest_row(table, self.settings, self.content))

    def count(self, table: str) -> int:
        return int(self.connection.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()[0])

    def require_at_most(self, most: int, table: str) -> None:
        require(self.count(table) <= most, f"its table '{table}' has more than {most} rows")

    def row_done(self) -> None:
        self._done += 1
        if self._done % ROWS_BETWEEN_REPORTS == 0 or self._done == self._total:
            self._progress(self._done, self._total)

    @cached_property
    def _total(self) -> int:
        return sum(self.count(table) for table in TABLES)
