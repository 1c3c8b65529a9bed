"""The lineage of a version: the version itself and its ancestors, found by one recursive query."""

from typing import NamedTuple

from sqlalchemy import CTE, ColumnElement, and_, select, true
from sqlalchemy.orm import Session

from store.models import Measurement, ModelId, Prototype, Statistics, Version


def descends(db: Session, model_id: ModelId, number: int, ancestor: int) -> bool:
    """Whether `ancestor` is the version itself or one of its ancestors."""
    line = lineage_of(model_id, number, since=ancestor)
    return db.scalars(select(line.c.number).where(line.c.number == ancestor)).one_or_none() is not None


class Step(NamedTuple):
    """A version in a lineage."""

    number: int
    weights: int
    classes: int
    kept: bool


def steps(db: Session, model_id: ModelId, number: int) -> list[Step]:
    """The lineage of a version, oldest first."""
    line = lineage_of(model_id, number)
    own = (Version.model_id == model_id, Version.number.in_(select(line.c.number)).is_(true()))
    rows = db.execute(
        select(Version.number, Version.weights, Version.classes, Version.kept).where(*own).order_by(Version.number)
    )
    return [Step(*row) for row in rows]


def lineage_of(model_id: ModelId, number: int, *, since: int = 0) -> CTE:
    """The version and its ancestors whose number is at least `since`, as a table with the column `number`.

    The database walks from parent to parent, so the statement stays the same however often the history forks, and a
    question about the recent past walks no further than that. A parent has a lower number than its child. A row that
    says otherwise, which only a manipulated archive could contain, ends the walk and cannot make it loop.
    """
    start = (Version.model_id == model_id, Version.number == number, Version.number >= since)
    line = select(Version.number, Version.parent).where(*start).cte("line", recursive=True)
    # Not a join: with outdated statistics PostgreSQL would read all versions of the model again at every step.
    grandparent = select(Version.parent).where(Version.model_id == model_id, Version.number == line.c.parent)
    older = select(line.c.parent, grandparent.scalar_subquery()).where(
        line.c.parent >= since, line.c.parent < line.c.number
    )
    return line.union_all(older)


def written_by_lineage(
    table: type[Prototype | Statistics | Measurement], model_id: ModelId, number: int, *, since: int = 0
) -> ColumnElement[bool]:
    """The condition that a row was written by the version or by one of its ancestors from `since` on."""
    line = lineage_of(model_id, number, since=since)
    # With "IS TRUE" PostgreSQL looks each row up in a hash table of the lineage. It plans a plain IN as a join, assumes
    # that the lineage is short, and reads it again for every row.
    written = table.version.in_(select(line.c.number)).is_(true())
    return and_(table.model_id == model_id, table.version.between(since, number), written)
