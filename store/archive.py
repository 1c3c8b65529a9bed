"""A model as one file: exported from one database and imported into another, where its answers are bitwise the same.

The file is a plain SQLite database with this release's tables (so the same migrations upgrade an older archive) and the
rows of a single model in `models`, `classes`, `versions`, `shots`, `guard_images`, `weights`, `prototypes` and
`statistics`. Sessions, keys, stored answers, measurements and samples are not exported; `session_id` is always null.
Classes and versions keep their numbers; the model, its shots and its guard images get new ids where they are imported.
`PRAGMA application_id`
distinguishes an archive from a service's database, and the table `archive` has one row:

    format  1
    digest  SHA-256, in hex, over the names, columns and rows of all other tables, see `archive_file`

so that a damaged file is refused instead of answering differently. The digest is not a signature: anyone can make an
archive. Call `check`, which checks the content, before `read`.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Table, create_engine, event, func, insert, select, update
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from store import archive_checks, catalogue, classes, names, sessions
from store.archive_file import ANY_SIZE, Flaw, allow, opened, require_intact, seal, settle, shape
from store.archive_rows import rows
from store.archive_tables import Content, largest_value
from store.database import Database
from store.errors import NameTaken, NotThere
from store.models import Base, ClassRow, Model, ModelId
from store.row_progress import Progress, no_progress
from store.settings import Settings

__all__ = ["Label", "check", "label", "read", "rebuild", "seal", "settle", "write"]

MODELS = Base.metadata.tables["models"]
ROWS_AT_ONCE = {  # bounds memory: an image can have megabytes, a set of weights tens of megabytes
    "classes": 1000,
    "versions": 1000,
    "shots": 8,
    "guard_images": 8,
    "weights": 1,
    "prototypes": 500,
    "statistics": 100,
}
BYTES_AT_ONCE = 16 * 2**20  # fewer rows at once if together they have more
TABLES = tuple(Base.metadata.tables[name] for name in ROWS_AT_ONCE)  # each after those that it refers to
RENUMBERED = ("shots", "guard_images")

Rows = Iterator[list[dict[str, Any]]]


@dataclass(frozen=True)
class Label:
    """What an archive contains by its own account; its rows are not checked yet."""

    revision: str  # the schema of its tables
    model: str
    backbone: str


def write(database: Database, name: str, path: Path, progress: Progress = no_progress) -> None:
    """Export the model as it is at this moment to `path`, an SQLite file that has the tables and no rows."""
    with database.read() as source, _transaction_on_file(path) as target:
        model = _get_model(source, name)
        row = source.execute(select(*MODELS.c).where(MODELS.c.id == model.id)).mappings().one()
        total = sum(source.scalars(select(func.count()).where(table.c.model_id == model.id)).one() for table in TABLES)
        _copy(dict(row), lambda table: _rows_of_model(source, table, model.id), total, target, progress)
    seal(path)


def label(path: Path) -> Label:
    """What an archive contains; raises `UnusableArchive` if the file is not an archive."""
    with opened(path) as connection:
        revision = _only(connection, "version_num", "alembic_version")
        model, backbone = _only(connection, "name", "models"), _only(connection, "backbone", "models")
        archive_checks.require_name(names.model_name, model, "the model")
        if not re.fullmatch(r"[a-z0-9_]{1,32}", revision):
            raise Flaw(f"its schema {revision[:40]!a} is not the schema of any release")
        return Label(revision, model, backbone)


def check(path: Path, settings: Settings, content: Content, progress: Progress = no_progress) -> None:
    """Raises `UnusableArchive` unless every row of an archive with this release's tables can be imported."""
    with opened(path) as connection:
        require_intact(connection, largest_value(settings, content))
        archive_checks.check(connection, settings, content, progress)


def rebuild(path: Path, fresh: Path, settings: Settings, content: Content) -> None:
    """Copy the rows of an older archive into `fresh`, a file with the tables of the archive's release.

    Migrations then run on tables that we made: on an untrusted schema they would execute what it contains.
    """
    with opened(path) as source, closing(sqlite3.connect(fresh)) as target:
        require_intact(source, largest_value(settings, content))
        expected = shape(target)
        if shape(source) != expected:
            raise Flaw("its tables are not those of the release that it names; export the model again")
        for table, columns in expected.items():
            if table == "alembic_version":
                continue
            listed = ", ".join(f'"{column}"' for column in columns)
            found = source.execute(f'SELECT {listed} FROM "{table}" NOT INDEXED ORDER BY rowid')
            places = ", ".join("?" for _ in columns)
            target.executemany(f'INSERT INTO "{table}" ({listed}) VALUES ({places})', found)
        target.commit()


def read(path: Path, database: Database, name: str, progress: Progress = no_progress) -> Model:
    """Import the model of an archive that passed `check`, under this name; all of it or nothing."""
    with opened(path) as source, database.write() as target:
        if catalogue.find(target, name) is not None:
            raise _name_taken(name)
        allow(source, ANY_SIZE)
        (row,) = rows(source, MODELS)
        total = sum(source.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()[0] for table in TABLES)
        try:
            model_id = _copy({**row, "name": name}, lambda table: _rows_of_file(source, table), total, target, progress)
        except (IntegrityError, DataError) as error:  # `check` knows all constraints, but the database decides
            raise Flaw(f"the database refuses it ({str(error.orig).splitlines()[0]})") from error
        model = target.get_one(Model, model_id)
        _enqueue_session(target, model)
        return model


def _name_taken(name: str) -> NameTaken:
    return NameTaken(f"there is a model named '{name}' already; give this one another name with --model")


def _only(connection: sqlite3.Connection, column: str, table: str) -> str:
    found = connection.execute(f"SELECT {column} FROM {table} NOT INDEXED LIMIT 2").fetchall()
    if len(found) != 1 or not isinstance(found[0][0], str):
        raise Flaw(f"its table '{table}' must have exactly one row with a text in {column}; export the model again")
    return str(found[0][0])


def _get_model(db: Session, name: str) -> Model:
    model = catalogue.find(db, name)
    if model is None:
        existing = ", ".join(f"'{each.name}'" for each in catalogue.everything(db)) or "none"
        raise NotThere(f"there is no model named '{name}'; there are {existing}")
    return model


def _copy(
    model: dict[str, Any], parts: Callable[[Table], Rows], total: int, target: Session, progress: Progress
) -> ModelId:
    """Copy one model with everything that belongs to it; returns its id in the target."""
    values = {column: value for column, value in model.items() if column != "id"}
    try:
        model_id = target.execute(insert(MODELS).values(values).returning(MODELS.c.id)).scalar_one()
    except IntegrityError as error:  # another process created it at the same moment
        raise _name_taken(model["name"]) from error
    copied = 0
    for table in TABLES:
        for part in parts(table):
            target.execute(insert(table), [_belonging_to(model_id, values) for values in part])
            copied += len(part)
            progress(copied, total)
    return ModelId(model_id)


def _rows_of_model(db: Session, table: Table, model_id: ModelId) -> Rows:
    """The rows of a model in the order in which they were written, a few at a time."""
    found = db.execute(
        select(*table.columns).where(table.c.model_id == model_id).order_by(*table.primary_key.columns),
        execution_options={"yield_per": ROWS_AT_ONCE[table.name]},
    )
    for part in found.mappings().partitions():
        yield [_without_id(table, dict(row)) for row in part]


def _rows_of_file(connection: sqlite3.Connection, table: Table) -> Rows:
    """The rows of an archive, a few at a time."""
    part: list[dict[str, Any]] = []
    size = 0
    for row in rows(connection, table):
        part.append(_without_id(table, row))
        size += sum(len(value) for value in row.values() if isinstance(value, bytes))
        if len(part) == ROWS_AT_ONCE[table.name] or size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _without_id(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not (name == "id" and table.name in RENUMBERED)}


def _belonging_to(model_id: int, values: dict[str, Any]) -> dict[str, Any]:
    without_session = {"session_id": None} if "session_id" in values else {}
    return {**values, "model_id": model_id, **without_session}


def _enqueue_session(db: Session, model: Model) -> None:
    """Sessions are not exported, so provisional classes get a new one here."""
    if classes.waiting(db, model.id):
        session = sessions.enqueue(db, model, delay=0, patience=0)
        waiting = (ClassRow.model_id == model.id, ClassRow.status == "provisional", ClassRow.deleted_at.is_(None))
        db.execute(update(ClassRow).where(*waiting).values(session_id=session.id))


@contextmanager
def _transaction_on_file(path: Path) -> Iterator[Session]:
    """One transaction, with a rollback journal, which stays small: a write-ahead log would hold every image again."""
    settle(path)
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(path, isolation_level=None), poolclass=NullPool)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with Session(engine) as db, db.begin():
        yield db
