"""Checks whether a database still holds what was written: its pages, references, images and every model's head.

It only reads, with bounded memory, and reports what is wrong. It repairs nothing.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, ForeignKeyConstraint, and_, create_engine, exists, func, inspect, select, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from store import versions
from store.bank_rows import class_ids
from store.errors import StoreError
from store.models import Base, GuardImage, Model, Shot, Weights
from store.row_progress import Progress, no_progress

IMAGES = (Shot, GuardImage)
IMAGES_AT_ONCE = 8  # bounds memory: an image can have megabytes
MOST_FAULTS = 20  # that SQLite reports; one is enough to act on


@dataclass(frozen=True)
class DamagedImage:
    """A stored image whose bytes have changed."""

    table: str
    id: int
    model: str
    class_id: int

    def __str__(self) -> str:
        kind = "guard image" if self.table == GuardImage.__tablename__ else "shot"
        return f"{kind} {self.id} of class {self.class_id}, model '{self.model}'"


def count_images(db: Session) -> int:
    return sum(db.execute(select(func.count()).select_from(table)).scalar_one() for table in IMAGES)


def damaged_images(db: Session, progress: Progress = no_progress) -> Iterator[DamagedImage]:
    """Read every stored image and compare it with its stored digest."""
    total, done = count_images(db), 0
    names = {row.id: row.name for row in db.execute(select(Model.id, Model.name))}
    for table in IMAGES:
        rows = db.execute(
            select(table.id, table.model_id, table.class_id, table.sha256, table.data).order_by(table.id),
            execution_options={"yield_per": IMAGES_AT_ONCE},
        )
        for own_id, model_id, class_id, sha256, data in rows:
            if hashlib.sha256(data).hexdigest() != sha256:
                yield DamagedImage(table.__tablename__, own_id, names.get(model_id, f"number {model_id}"), class_id)
            done += 1
            progress(done, total)


def damaged_pages(db: Session) -> list[str]:
    """What SQLite finds wrong with its own file. For PostgreSQL there is `pg_amcheck`."""
    if db.get_bind().dialect.name != "sqlite":
        return []
    found = [row[0] for row in db.execute(text(f"PRAGMA integrity_check({MOST_FAULTS})"))]
    return [] if found == ["ok"] else found


def dangling_rows(db: Session) -> dict[str, int]:
    """How many rows of each table refer to a row that does not exist; tables without any are left out."""
    found: dict[str, int] = {}
    for table in Base.metadata.sorted_tables:
        for constraint in table.foreign_key_constraints:
            number = _dangling(db.connection(), constraint)
            if number:
                found[table.name] = found.get(table.name, 0) + number
    return found


def _dangling(connection: Connection, constraint: ForeignKeyConstraint) -> int:
    parent = constraint.referred_table.alias()
    pairs = [(element.parent, parent.c[element.column.name]) for element in constraint.elements]
    is_there = exists().where(and_(*(own == other for own, other in pairs)))
    refers = and_(*(own.is_not(None) for own, _ in pairs))
    return connection.execute(select(func.count()).select_from(constraint.table).where(refers, ~is_there)).scalar_one()


def unservable_models(db: Session) -> dict[str, str]:
    """Models whose head cannot be served, and why."""
    reasons = {model.name: _why_unservable(db, model) for model in db.scalars(select(Model).order_by(Model.name))}
    return {name: reason for name, reason in reasons.items() if reason}


def _why_unservable(db: Session, model: Model) -> str | None:
    try:
        head = versions.servable(db, model.id, model.head)
    except StoreError as error:
        return str(error)
    needed = {number for number in (head.base, head.weights) if number != 0}  # version 0 is the pretrained backbone
    stored = set(db.scalars(select(Weights.version).where(Weights.model_id == model.id, Weights.version.in_(needed))))
    if needed - stored:
        return f"the weights of version {min(needed - stored)}, which version {head.number} needs, are missing"
    known = len(class_ids(db, model.id, head.number))
    if known != head.classes:
        return f"version {head.number} should know {head.classes} classes, but has prototypes of {known}"
    return None


def damaged_images_in(file: Path, progress: Progress = no_progress) -> list[DamagedImage]:
    """As `damaged_images`, for an SQLite file that nobody writes to and that any release may have made."""
    read_only = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(read_only, uri=True), poolclass=NullPool)
    with Session(engine) as db:
        if not inspect(db.connection()).has_table(Shot.__tablename__):  # a database that was never migrated
            return []
        return list(damaged_images(db, progress))
