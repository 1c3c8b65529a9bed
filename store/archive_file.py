"""An archive as an untrusted file: opened so that nothing in it is executed, and compared with its digest.

SQLite executes parts of a schema: views, triggers, generated columns, indexes on expressions, CHECK constraints. Here
none of them is executed. The file may contain plain tables only, they are scanned without their indexes, and no value
may be larger than the reader expects. See https://sqlite.org/security.html.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from store.errors import UnusableArchive
from store.outages import is_full

APPLICATION = 0x50517561  # "PQua" in the file's header
FORMAT = 1
MAGIC = b"SQLite format 3\0"
SMALL = 2**20  # bytes of a value, unless the reader allows more
ANY_SIZE = 2**31 - 1  # the limit of SQLite itself
MOST_OBJECTS = 200  # tables and indexes; a release has about forty
STEPS = 10_000  # of SQLite's virtual machine between two calls of the progress handler
MOST_STEPS = 200  # times `STEPS` to load a schema: walking a damaged tree of pages may never end
LONGEST_REASON = 500

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: SMALL,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 5,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
_CAREFULLY = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "ignore_check_constraints = ON",  # they would run while the file is checked
    "query_only = ON",
    "mmap_size = 0",
)


class Flaw(Exception):
    """What is wrong with an archive. `opened` adds the name of the file. The text may repeat content of the file."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Flaw(f"{otherwise}; export the model again")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, open for reading; any flaw found meanwhile is raised as `UnusableArchive`.

    Leaves no trace: no lock and no log beside the file, which may be in a read-only folder.
    """
    _require_sqlite(path)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            _set_up(connection)
            _require_archive(connection)
            _require_plain(connection)
            connection.set_progress_handler(None, 0)
            yield connection
    except Flaw as flaw:
        raise UnusableArchive(f"{path} cannot be imported: {flaw}") from flaw
    except sqlite3.DataError as error:
        raise UnusableArchive(f"{path} cannot be imported: it contains a value that is too large") from error
    except (sqlite3.Error, UnicodeError) as error:
        if is_full(error):  # of what is written from it meanwhile
            raise
        raise UnusableArchive(f"{path} is damaged ({printable(error)}); export the model again") from error


def allow(connection: sqlite3.Connection, largest: int) -> None:
    """Set the most bytes of a value; a larger one is refused before it is read."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(largest, 2**31 - 1))


def shape(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The tables and their columns."""
    return {
        table: [name for (name,) in connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))]
        for table in _tables(connection)
    }


def require_intact(connection: sqlite3.Connection, largest: int) -> None:
    """Raises unless the digest is right, and if a value has more than `largest` bytes."""
    allow(connection, largest)
    ((verdict,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
    found = connection.execute("SELECT format, digest FROM archive NOT INDEXED LIMIT 2").fetchall()
    if len(found) != 1:
        raise Flaw("its table 'archive' must have exactly one row; export the model again")
    ((form, digest),) = found
    if form != FORMAT:
        raise Flaw(f"its format is {str(form)[:20]!r}, this release reads {FORMAT}; install a newer release")
    if digest != _digest(connection):
        raise sqlite3.DatabaseError("its content is not what was written")


def seal(path: Path) -> None:
    """Turn an SQLite file with the rows of a model into an archive."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE archive (format INTEGER NOT NULL, digest TEXT NOT NULL)")
        connection.execute("INSERT INTO archive VALUES (?, ?)", (FORMAT, _digest(connection)))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.commit()


def settle(path: Path) -> None:
    """Remove the write-ahead log of an SQLite file that nobody has open, so that it is a single file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def _require_sqlite(path: Path) -> None:
    try:
        if path.exists() and not path.is_dir() and not path.is_file():  # reading from a pipe would wait for its writer
            raise UnusableArchive(f"{path} is not a file; `protoquad export` makes one")
        with path.open("rb") as file:
            beginning = file.read(len(MAGIC))
    except OSError as error:
        raise UnusableArchive(f"{path} cannot be read: {error.strerror}") from error
    if beginning != MAGIC:
        raise UnusableArchive(f"{path} is not an archive; `protoquad export` makes one")


def _set_up(connection: sqlite3.Connection) -> None:
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_progress_handler(_stop_after(MOST_STEPS), STEPS)
    for pragma in _CAREFULLY:
        connection.execute(f"PRAGMA {pragma}")


def _stop_after(times: int) -> Callable[[], int]:
    left = iter(range(times))
    return lambda: 0 if next(left, None) is not None else 1


def _require_archive(connection: sqlite3.Connection) -> None:
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    if application != APPLICATION:
        raise Flaw("it is a database but not an archive; `protoquad export` makes one")


def _require_plain(connection: sqlite3.Connection) -> None:
    """Raises a `Flaw` if there is anything but tables and indexes of plain columns."""
    objects = connection.execute(f"SELECT type, name, rootpage FROM sqlite_master LIMIT {MOST_OBJECTS + 1}").fetchall()
    if len(objects) > MOST_OBJECTS:
        raise Flaw(f"it has more than {MOST_OBJECTS} tables and indexes; export the model again")
    for kind, name, root in objects:
        if kind not in {"table", "index"} or not isinstance(root, int) or root < 1:
            raise Flaw(f"it contains {printable(name)}, which is not a plain table; export the model again")
        if kind == "table":
            computed = "SELECT count(*) FROM pragma_table_xinfo(?) WHERE hidden <> 0"
        else:
            computed = "SELECT count(*) FROM pragma_index_xinfo(?) WHERE cid < -1"
        if connection.execute(computed, (name,)).fetchone() != (0,):
            raise Flaw(f"its {kind} {printable(name)} contains expressions; export the model again")


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Without SQLite's own tables and that of the digest."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return sorted(name for (name,) in found if name != "archive")


def _digest(connection: sqlite3.Connection) -> str:
    """The digest of all tables except `archive`. It does not depend on the release's tables."""
    digest = hashlib.sha256()

    def add(value: object) -> None:
        raw = value if isinstance(value, bytes) else str(value).encode()
        digest.update(f"{type(value).__name__} {len(raw)} ".encode())
        digest.update(raw)

    for table in _tables(connection):
        quoted = table.replace('"', '""')
        rows = connection.execute(f'SELECT * FROM "{quoted}" NOT INDEXED ORDER BY rowid')
        add(table)
        for column in rows.description:
            add(column[0])
        for row in rows:
            for value in row:
                add(value)
    return digest.hexdigest()


def printable(reason: object) -> str:
    """The text, shortened and without control characters, which a terminal would obey."""
    text = str(reason)[:LONGEST_REASON]
    return "".join(character if character.isprintable() else "?" for character in text)
