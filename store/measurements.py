"""What versions make of images that they were not made from: written once, when a version is published.

A version writes what it has measured anew. What holds for it is the newest row of each image among itself and its
ancestors, as with the bank. A row is gone with its image.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, case, delete, func, insert, select
from sqlalchemy.orm import Session

from store.database import batched
from store.lineage import written_by_lineage
from store.models import GuardImage, Measurement, ModelId, Shot, Version

DIGITS = 4  # of a share
Z = 1.959964  # of a 95 % confidence interval


@dataclass(frozen=True)
class Measured:
    """What a version makes of one image."""

    image: int  # a shot, or, below zero, a guard image
    class_id: int  # its own
    nearest: int  # the answer
    distance: float  # from its own class
    confidence: float
    refused: bool
    harmful: bool | None = None
    version: int = 0  # that measured it

    @property
    def right(self) -> bool:
        return self.nearest == self.class_id


@dataclass(frozen=True)
class Counts:
    """How many images were measured, answered right, and refused."""

    images: int
    right: int
    refused: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the share of right answers (Wilson, 1927)."""
        n, share = self.images, self.right / self.images
        centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
        half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
        return max(0.0, centre - half), min(1.0, centre + half)


def count(found: Collection[Measured]) -> Counts:
    return Counts(len(found), sum(one.right for one in found), sum(one.refused for one in found))


def summary(found: Collection[Measured]) -> dict[str, int | float] | None:
    """As an answer shows it; None if nothing was measured."""
    if not found:
        return None
    counts = count(found)
    low, high = counts.interval
    numbers = {"images": counts.images, "right": counts.right, "refused": counts.refused}
    return {**numbers, "low": round(low, DIGITS), "high": round(high, DIGITS)}


def by_class(found: Iterable[Measured]) -> dict[int, list[Measured]]:
    parts: dict[int, list[Measured]] = {}
    for one in found:
        parts.setdefault(one.class_id, []).append(one)
    return parts


def add(db: Session, model_id: ModelId, version: int, rows: Sequence[Measured]) -> None:
    if rows:
        db.execute(insert(Measurement), [_values(model_id, version, row) for row in rows])


def _values(model_id: ModelId, version: int, row: Measured) -> dict[str, object]:
    return {
        "model_id": model_id,
        "version": version,
        "class_id": row.class_id,
        "shot_id": row.image if row.image > 0 else None,
        "guard_id": -row.image if row.image < 0 else None,
        "nearest": row.nearest,
        "distance": row.distance,
        "confidence": row.confidence,
        "refused": row.refused,
        "harmful": row.harmful,
    }


def newest(db: Session, model_id: ModelId, number: int) -> list[Measured]:
    """What holds for a version, ordered by class and image."""
    chosen = Measurement.id.in_(_newest_ids(model_id, number))
    rows = db.execute(select(*_COLUMNS).where(chosen).order_by(Measurement.class_id, Measurement.id))
    return [_measured(*row) for row in rows]


def newest_of(db: Session, model_id: ModelId, number: int, class_ids: Sequence[int]) -> list[Measured]:
    """What holds for a version, of the images that are stored of these classes now. Reads no other rows."""
    found: list[Measured] = []
    for some in batched(class_ids):
        for table, column in ((Shot, Measurement.shot_id), (GuardImage, Measurement.guard_id)):
            stored = select(table.id).where(table.model_id == model_id, table.class_id.in_(some))
            newest_ids = _newest_ids(model_id, number).where(column.in_(stored))
            rows = db.execute(select(*_COLUMNS).where(Measurement.id.in_(newest_ids)).order_by(Measurement.id))
            found += [_measured(*row) for row in rows]
    return found


def accuracy(db: Session, model_id: ModelId, number: int) -> dict[int, float]:
    """The share of right answers of each class."""
    right = func.avg(case((Measurement.nearest == Measurement.class_id, 1.0), else_=0.0))
    chosen = Measurement.id.in_(_newest_ids(model_id, number))
    rows = db.execute(select(Measurement.class_id, right).where(chosen).group_by(Measurement.class_id))
    return {class_id: float(share) for class_id, share in rows}


_COLUMNS = (
    *(Measurement.shot_id, Measurement.guard_id, Measurement.class_id, Measurement.nearest, Measurement.distance),
    *(Measurement.confidence, Measurement.refused, Measurement.harmful, Measurement.version),
)


def _measured(shot_id: int | None, guard_id: int | None, *facts: Any) -> Measured:
    return Measured(shot_id if shot_id is not None else -(guard_id or 0), *facts)


def _newest_ids(model_id: ModelId, number: int) -> Select[int]:
    """Versions are numbered in the order in which they are written: the newest row of an image has the highest id."""
    return (
        select(func.max(Measurement.id))
        .where(written_by_lineage(Measurement, model_id, number))
        .group_by(Measurement.shot_id, Measurement.guard_id)
    )


def drop_unread(db: Session, model_id: ModelId, first_kept: Sequence[int]) -> None:
    """Keep what the kept versions wrote, and what the first of each run of kept versions reads from before it."""
    dropped = (Version.model_id == model_id, ~Version.kept)
    numbers = select(Version.number).where(*dropped)
    unread = set(
        db.scalars(select(Measurement.id).where(Measurement.model_id == model_id, Measurement.version.in_(numbers)))
    )
    for first in first_kept:
        unread -= set(db.scalars(_newest_ids(model_id, first)))
    for some in batched(sorted(unread)):
        db.execute(delete(Measurement).where(Measurement.id.in_(some)))
