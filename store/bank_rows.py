"""The bank of a version as rows: for each class the newest prototype among the version and its ancestors.

A version writes only the prototypes that changed. So teaching one class writes one row, however many classes there are,
and the bank of an old version can be read exactly as it was.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session

from store.lineage import descends, written_by_lineage
from store.models import ModelId, Prototype, Statistics, VersionNumber

COPIES = 5  # B of the paper: how many copies of a prototype a session may read


@dataclass(frozen=True)
class PrototypeRow:
    """What a version writes about one class; a vector of None means that the class was deleted."""

    class_id: int
    vector: bytes | None
    shots: int
    restart: bool
    held_out: bytes | None = None


@dataclass(frozen=True)
class StatisticsRow:
    class_id: int
    mean: bytes
    factor: bytes


@dataclass(frozen=True)
class KnownClass:
    """A class in the bank of a version, with its newest copies; the newest copy is the last."""

    class_id: int
    shots: int
    initial: bytes
    copies: tuple[bytes, ...]
    held_out: bytes | None
    mean: bytes | None = None
    factor: bytes | None = None


def read_bank(db: Session, model_id: ModelId, number: int, *, copies: int = 1) -> list[KnownClass]:
    """The bank of a version, ordered by class id. One copy is enough to serve; learning reads more."""
    statistics = _statistics(db, model_id, number) if copies > 1 else {}
    return [
        _known_class(history, copies, statistics.get(class_id))
        for class_id, history in _newest_rows(db, model_id, number, copies).items()
        if history[0].vector is not None
    ]


def _known_class(history: list[Any], copies: int, statistics: tuple[int, bytes, bytes] | None) -> KnownClass:
    """`history` has the rows of one class, newest first."""
    newest = history[0]
    start = next((place for place, row in enumerate(history) if row.restart), len(history) - 1)
    version, mean, factor = statistics or (-1, None, None)
    if version < history[start].version:  # they describe the class as it was before it was learned anew
        mean = factor = None
    return KnownClass(
        newest.class_id,
        newest.shots,
        bytes(history[start].vector),
        tuple(bytes(row.vector) for row in reversed(history[: min(start + 1, copies)])),
        newest.held_out,
        mean,
        factor,
    )


def changes(db: Session, model_id: ModelId, since: int, number: int) -> list[PrototypeRow] | None:
    """What a version and its ancestors wrote after version `since`: the newest row of each class.

    None if the version does not descend from `since`.
    """
    if not descends(db, model_id, number, since):
        return None
    rows = db.scalars(
        select(Prototype)
        .where(_chosen(model_id, _newest(model_id, number, since=since + 1)))
        .order_by(Prototype.version.desc(), Prototype.class_id)
    )
    return [_as_value(row) for row in rows]


def prototype(db: Session, model_id: ModelId, number: int, class_id: int) -> PrototypeRow | None:
    """What a version knows about one class."""
    row = db.scalars(
        select(Prototype)
        .where(Prototype.class_id == class_id, written_by_lineage(Prototype, model_id, number))
        .order_by(Prototype.version.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None or row.vector is None else _as_value(row)


def _as_value(row: Prototype) -> PrototypeRow:
    return PrototypeRow(row.class_id, row.vector, row.shots, row.restart, row.held_out)


def class_ids(db: Session, model_id: ModelId, number: int) -> list[int]:
    """The classes that a version knows."""
    known = and_(_chosen(model_id, _newest(model_id, number)), Prototype.vector.is_not(None))
    return list(db.scalars(select(Prototype.class_id).where(known).order_by(Prototype.class_id)))


def _newest_rows(db: Session, model_id: ModelId, number: int, copies: int) -> dict[int, list[Any]]:
    """For each class the newest rows of the lineage, newest first, and the row with which it was last learned anew."""
    chosen = _newest(model_id, number) if copies == 1 else rows_to_read(model_id, number, copies)
    kept = (Prototype.vector, Prototype.shots, Prototype.restart, Prototype.held_out)
    rows = db.execute(
        select(Prototype.class_id, Prototype.version, *kept)
        .where(_chosen(model_id, chosen))
        .order_by(Prototype.class_id, Prototype.version.desc())
    )
    return {class_id: list(history) for class_id, history in groupby(rows, key=lambda row: row.class_id)}


def _chosen(model_id: ModelId, classes_and_versions: Select[int, VersionNumber]) -> ColumnElement[bool]:
    return and_(Prototype.model_id == model_id, tuple_(Prototype.class_id, Prototype.version).in_(classes_and_versions))


def _newest(model_id: ModelId, number: int, *, since: int = 0) -> Select[int, VersionNumber]:
    """Class and version of each class's newest row; an index alone answers it."""
    return (
        select(Prototype.class_id, func.max(Prototype.version).label("version"))
        .where(written_by_lineage(Prototype, model_id, number, since=since))
        .group_by(Prototype.class_id)
    )


def rows_to_read(model_id: ModelId, number: int, copies: int, *, since: int = 0) -> Select[int, VersionNumber]:
    """Class and version of each class's newest `copies` rows, and of the newest row that learned it anew."""
    order = Prototype.version.desc()
    age = func.row_number().over(partition_by=Prototype.class_id, order_by=order)
    age_of_kind = func.row_number().over(partition_by=[Prototype.class_id, Prototype.restart], order_by=order)
    ages = (age.label("age"), age_of_kind.label("age_of_kind"))
    written = written_by_lineage(Prototype, model_id, number, since=since)
    ranked = select(Prototype.class_id, Prototype.version, Prototype.restart, *ages).where(written).subquery()
    anew = and_(ranked.c.restart, ranked.c.age_of_kind == 1)
    return select(ranked.c.class_id, ranked.c.version).where(or_(ranked.c.age <= copies, anew))


def _statistics(db: Session, model_id: ModelId, number: int) -> dict[int, tuple[int, bytes, bytes]]:
    rows = db.execute(
        select(Statistics.class_id, Statistics.version, Statistics.mean, Statistics.factor)
        .where(written_by_lineage(Statistics, model_id, number))
        .order_by(Statistics.version)
    )
    return {class_id: (version, mean, factor) for class_id, version, mean, factor in rows}
