"""A model as one file: written from one database, read into another, where it answers bit for bit the same.

The file is a plain SQLite database with this release's tables (so an older archive is brought up to date by the same
migrations) and the rows of a single model in `models`, `classes`, `versions`, `shots`, `guard_images`, `weights`,
`prototypes` and `statistics`. Sessions, keys and remembered answers stay behind; `session_id` is null throughout.
Classes and versions keep their numbers, by which they are known; a model, shot or guard image gets a new id wherever it
arrives. `PRAGMA application_id` tells an archive from a home's database, and the table `archive` holds its one row:

    format  1
    digest  SHA-256, in hex, over the names, columns and rows of all other tables, see `archive_file`

so that a file which lost or changed a byte on its way is refused instead of answering differently. The digest is no
signature: anybody can make an archive. `check` judges what one says; call it before `read`.
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
from store.archive_checks import Content
from store.archive_file import ANY_SIZE, Flaw, UnusableArchive, allow, opened, require_intact, seal, settle, shape
from store.archive_rows import rows
from store.database import Database
from store.errors import NameTaken, NotThere, UnusableName
from store.models import Base, ClassRow, Model, ModelId
from store.settings import Settings

__all__ = ["Label", "UnusableArchive", "check", "label", "read", "rebuild", "seal", "settle", "write"]

MODELS = Base.metadata.tables["models"]
ROWS_AT_ONCE = {  # bounds memory: a picture may have megabytes, a set of weights tens of them
    "classes": 1000,
    "versions": 1000,
    "shots": 8,
    "guard_images": 8,
    "weights": 1,
    "prototypes": 500,
    "statistics": 100,
}
BYTES_AT_ONCE = 16 * 2**20  # where fewer rows than that are larger than expected
TABLES = tuple(Base.metadata.tables[name] for name in ROWS_AT_ONCE)  # each after those it refers to
RENUMBERED = ("shots", "guard_images")

Told = Callable[[int, int], None]  # rows copied, of how many
Rows = Iterator[list[dict[str, Any]]]


@dataclass(frozen=True)
class Label:
    """What an archive says of itself; its rows are not checked yet."""

    revision: str  # of its tables
    model: str
    backbone: str


def silent(copied: int, total: int) -> None:
    """A listener that does not listen."""


def write(database: Database, name: str, path: Path, told: Told = silent) -> None:
    """The model as it is at this moment into `path`, an SQLite file that has the tables and no rows."""
    with database.read() as source, _filling(path) as target:
        model = _asked_for(source, name)
        row = source.execute(select(*MODELS.c).where(MODELS.c.id == model.id)).mappings().one()
        total = sum(source.execute(_owned(func.count(), table, model.id)).scalar_one() for table in TABLES)
        _copy(dict(row), lambda table: _parts(source, table, model.id), total, target, told)
    seal(path)


def label(path: Path) -> Label:
    """What is in an archive; raises `UnusableArchive` for a file that is none."""
    with opened(path) as connection:
        revision = _only(connection, "version_num", "alembic_version")
        model, backbone = _only(connection, "name", "models"), _only(connection, "backbone", "models")
        try:
            names.model_name(model)
        except UnusableName as error:
            raise Flaw(f"the name of the model cannot be used: {error}") from error
        if not re.fullmatch(r"[a-z0-9_]{1,32}", revision):
            raise Flaw(f"its schema {revision[:40]!a} is no schema of any release")
        return Label(revision, model, backbone)


def check(path: Path, settings: Settings, content: Content, told: Told = silent) -> None:
    """Raise `UnusableArchive` unless every row of an archive with this release's tables can become part of a model."""
    with opened(path) as connection:
        require_intact(connection, archive_checks.largest_value(settings, content))
        archive_checks.check(connection, settings, content, told)


def rebuild(path: Path, fresh: Path, settings: Settings, content: Content) -> None:
    """The rows of an older archive into `fresh`, a file with the tables of its release.

    Migrations then run on tables of our own making: they would execute what a stranger's schema says.
    """
    largest = archive_checks.largest_value(settings, content)
    with opened(path) as source, closing(sqlite3.connect(fresh)) as target:
        require_intact(source, largest)
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


def read(path: Path, database: Database, name: str, told: Told = silent) -> Model:
    """The model of an archive that `check` let pass, under that name; all of it or nothing."""
    with opened(path) as source, database.write() as target:
        if catalogue.find(target, name) is not None:
            raise NameTaken(f"there is a model named '{name}' already; give this one another name with --model")
        allow(source, ANY_SIZE)
        (row,) = rows(source, MODELS)
        total = sum(source.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()[0] for table in TABLES)
        try:
            arrived = _copy({**row, "name": name}, lambda table: _gathered(source, table), total, target, told)
        except (IntegrityError, DataError) as error:  # `check` knows all constraints; the database has the last word
            raise Flaw(f"the database refuses it ({str(error.orig).splitlines()[0]})") from error
        model = target.get_one(Model, arrived)
        _go_on_learning(target, model)
        return model


def _only(connection: sqlite3.Connection, column: str, table: str) -> str:
    found = connection.execute(f"SELECT {column} FROM {table} NOT INDEXED LIMIT 2").fetchall()
    if len(found) != 1 or not isinstance(found[0][0], str):
        raise Flaw(f"its table '{table}' must have exactly one row with a text as {column}; export the model again")
    return str(found[0][0])


def _asked_for(db: Session, name: str) -> Model:
    model = catalogue.find(db, name)
    if model is None:
        there = ", ".join(f"'{each.name}'" for each in catalogue.everything(db)) or "none"
        raise NotThere(f"there is no model named '{name}'; there are {there}")
    return model


def _copy(model: dict[str, Any], parts: Callable[[Table], Rows], total: int, target: Session, told: Told) -> ModelId:
    """One model with all that belongs to it; answers its id in the target."""
    values = {column: value for column, value in model.items() if column != "id"}
    try:
        arrived = target.execute(insert(MODELS).values(values).returning(MODELS.c.id)).scalar_one()
    except IntegrityError as error:  # two at once: the database lets one through
        taken = f"there is a model named '{model['name']}' already; give this one another name with --model"
        raise NameTaken(taken) from error
    copied = 0
    for table in TABLES:
        for part in parts(table):
            target.execute(insert(table), [_moved(values, arrived) for values in part])
            copied += len(part)
            told(copied, total)
    return ModelId(arrived)


def _owned(what: Any, table: Table, model_id: ModelId) -> Any:
    return select(what).select_from(table).where(table.c.model_id == model_id)


def _parts(db: Session, table: Table, model_id: ModelId) -> Rows:
    """The rows of a model in the order they were written in, a few at a time."""
    found = db.execute(
        select(*table.columns).where(table.c.model_id == model_id).order_by(*table.primary_key.columns),
        execution_options={"yield_per": ROWS_AT_ONCE[table.name]},
    )
    for part in found.mappings().partitions():
        yield [_without_id(table, dict(row)) for row in part]


def _gathered(connection: sqlite3.Connection, table: Table) -> Rows:
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


def _moved(values: dict[str, Any], model_id: ModelId) -> dict[str, Any]:
    forgotten = {"session_id": None} if "session_id" in values else {}
    return {**values, "model_id": model_id, **forgotten}


def _go_on_learning(db: Session, model: Model) -> None:
    """The session that a provisional class waited for stayed behind: here it waits for another."""
    if classes.waiting(db, model.id):
        session = sessions.enqueue(db, model, delay=0, patience=0)
        waiting = (ClassRow.model_id == model.id, ClassRow.status == "provisional", ClassRow.deleted_at.is_(None))
        db.execute(update(ClassRow).where(*waiting).values(session_id=session.id))


@contextmanager
def _filling(path: Path) -> Iterator[Session]:
    """One transaction, with a journal that holds next to nothing: a log would hold every picture a second time."""
    settle(path)
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(path, isolation_level=None), poolclass=NullPool)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with Session(engine) as db, db.begin():
        yield db
