"""A model as one file: written from one database, read into another, where it answers bit for bit the same.

The file is a plain SQLite database with this release's tables (so an older archive is brought up to date by the same
migrations) and the rows of a single model in `models`, `classes`, `versions`, `shots`, `guard_images`, `weights`,
`prototypes` and `statistics`. Sessions, keys and remembered answers stay behind; `session_id` is null throughout.
Classes and versions keep their numbers, by which they are known; a model, shot or guard image gets a new id wherever it
arrives. `PRAGMA application_id` tells an archive from a home's database, and the table `archive` holds its one row:

    format  1
    digest  SHA-256, in hex, over the names, columns and rows of all other tables, see `_digest`

so that a file which lost or changed a byte on its way is refused instead of answering differently.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Table, create_engine, event, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from store import catalogue, classes, sessions
from store.database import Database
from store.errors import NameTaken, NotThere, StoreError
from store.models import Base, ClassRow, Model, ModelId

APPLICATION = 0x50517561  # "PQua" in the file's header
FORMAT = 1
MAGIC = b"SQLite format 3\0"
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
TABLES = tuple(Base.metadata.tables[name] for name in ROWS_AT_ONCE)  # each after those it refers to
RENUMBERED = ("shots", "guard_images")

Told = Callable[[int, int], None]  # rows copied, of how many


class UnusableArchive(StoreError):
    """The file is no archive, or not the one that was written."""


@dataclass(frozen=True)
class Label:
    """What an archive says of itself."""

    revision: str  # of its tables
    model: str


def silent(copied: int, total: int) -> None:
    """A listener that does not listen."""


def write(database: Database, name: str, path: Path, told: Told = silent) -> None:
    """The model as it is at this moment into `path`, an SQLite file that has the tables and no rows."""
    with database.read() as source, _filling(path) as target:
        model = _asked_for(source, name)
        _copy(source, target, model.id, model.name, told)
    with closing(sqlite3.connect(path)) as connection:
        _seal(connection)


def label(path: Path) -> Label:
    """What is in an archive, after every byte of it was checked; raises `UnusableArchive` for anything else."""
    _require_sqlite(path)
    with closing(_immutable(path)) as connection:
        try:
            _require_sound(connection, path)
            ((revision,),) = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            ((model,),) = connection.execute("SELECT name FROM models").fetchall()
        except (sqlite3.DatabaseError, ValueError) as error:
            raise UnusableArchive(f"{path} is damaged ({error}); export the model again") from error
    return Label(str(revision), str(model))


def read(path: Path, database: Database, name: str, told: Told = silent) -> Model:
    """The model of an archive with this release's tables, under that name; all of it or nothing."""
    with _reading(path) as source, database.write() as target:
        if catalogue.find(target, name) is not None:
            raise NameTaken(f"there is a model named '{name}' already; give this one another name with --model")
        model_id = source.execute(select(Model.id)).scalar_one()
        model = target.get_one(Model, _copy(source, target, model_id, name, told))
        _go_on_learning(target, model)
        return model


def settle(path: Path) -> None:
    """Make an SQLite file that nobody has open a single plain one, with no log beside it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def _asked_for(db: Session, name: str) -> Model:
    model = catalogue.find(db, name)
    if model is None:
        there = ", ".join(f"'{each.name}'" for each in catalogue.everything(db)) or "none"
        raise NotThere(f"there is no model named '{name}'; there are {there}")
    return model


def _copy(source: Session, target: Session, model_id: ModelId, name: str, told: Told) -> ModelId:
    """One model with all that belongs to it; answers its id in the target."""
    total = sum(source.execute(_owned(func.count(), table, model_id)).scalar_one() for table in TABLES)
    row = source.execute(select(*MODELS.c).where(MODELS.c.id == model_id)).mappings().one()
    values = {column: value for column, value in row.items() if column != "id"} | {"name": name}
    try:
        arrived = target.execute(insert(MODELS).values(values).returning(MODELS.c.id)).scalar_one()
    except IntegrityError as error:  # two at once: the database lets one through
        raise NameTaken(f"there is a model named '{name}' already; give this one another name with --model") from error
    copied = 0
    for table in TABLES:
        for part in _parts(source, table, model_id):
            target.execute(insert(table), [_moved(values, arrived) for values in part])
            copied += len(part)
            told(copied, total)
    return ModelId(arrived)


def _owned(what: Any, table: Table, model_id: ModelId) -> Any:
    return select(what).select_from(table).where(table.c.model_id == model_id)


def _parts(db: Session, table: Table, model_id: ModelId) -> Iterator[list[dict[str, Any]]]:
    """The rows in the order they were written in, a few at a time."""
    columns = [column for column in table.columns if not (column.name == "id" and table.name in RENUMBERED)]
    rows = db.execute(
        select(*columns).where(table.c.model_id == model_id).order_by(*table.primary_key.columns),
        execution_options={"yield_per": ROWS_AT_ONCE[table.name]},
    )
    for part in rows.mappings().partitions():
        yield [dict(row) for row in part]


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


@contextmanager
def _reading(path: Path) -> Iterator[Session]:
    engine = create_engine("sqlite://", creator=lambda: _immutable(path), poolclass=NullPool)
    with Session(engine) as db:
        yield db


def _immutable(path: Path) -> sqlite3.Connection:
    """Leaves no trace: no lock, no log beside the file, and it may lie where nobody may write."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


def _seal(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE archive (format INTEGER NOT NULL, digest TEXT NOT NULL)")
    connection.execute("INSERT INTO archive VALUES (?, ?)", (FORMAT, _digest(connection)))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.commit()


def _require_sqlite(path: Path) -> None:
    try:
        with path.open("rb") as file:
            beginning = file.read(len(MAGIC))
    except OSError as error:
        raise UnusableArchive(f"{path} cannot be read: {error.strerror}") from error
    if beginning != MAGIC:
        raise UnusableArchive(f"{path} is not an archive; `protoquad export` makes one")


def _require_sound(connection: sqlite3.Connection, path: Path) -> None:
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    if application != APPLICATION:
        raise UnusableArchive(f"{path} is a database, but not an archive; `protoquad export` makes one")
    ((verdict,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
    ((form, digest),) = connection.execute("SELECT format, digest FROM archive").fetchall()
    if form != FORMAT:
        raise UnusableArchive(f"{path} is an archive of format {form}, this release reads {FORMAT}; take a newer one")
    if digest != _digest(connection):
        raise sqlite3.DatabaseError("its content is not what was written")


def _digest(connection: sqlite3.Connection) -> str:
    """Of what every table but `archive` holds, whichever tables there are: an old archive is checked as it was made."""
    digest = hashlib.sha256()

    def add(value: object) -> None:
        raw = value if isinstance(value, bytes) else str(value).encode()
        digest.update(f"{type(value).__name__} {len(raw)} ".encode())
        digest.update(raw)

    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    for table in sorted(name for (name,) in found if name != "archive"):
        rows = connection.execute(f'SELECT * FROM "{table}" ORDER BY rowid')
        add(table)
        for column in rows.description:
            add(column[0])
        for row in rows:
            for value in row:
                add(value)
    return digest.hexdigest()
