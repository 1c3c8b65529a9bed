"""What versions make of images that they were not made from: written once, when a version is published.

A version writes what it has measured anew. What holds for it is the newest row of each image among itself and its
ancestors, as with the bank. A row is gone with its image.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from store.database import batched
from store.lineage import written_by_lineage
from store.models import Measurement, ModelId, Version

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


def accuracy(found: Iterable[Measured]) -> Mapping[int, float]:
    """The share of right answers of each class."""
    return {class_id: sum(one.right for one in part) / len(part) for class_id, part in by_class(found).items()}


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


def newest(db: Session, model_id: ModelId, number: int, class_ids: Sequence[int] | None = None) -> list[Measured]:
    """What holds for a version, ordered by class and image; of these classes only, if any are named."""
    # Versions are numbered in the order in which they are written, so the newest row has the highest id.
    chosen = (
        select(func.max(Measurement.id))
        .where(written_by_lineage(Measurement, model_id, number))
        .group_by(Measurement.shot_id, Measurement.guard_id)
    )
    statement = select(Measurement).where(Measurement.id.in_(chosen)).order_by(Measurement.class_id, Measurement.id)
    if class_ids is None:
        rows = list(db.scalars(statement))
    else:
        parts = [db.scalars(statement.where(Measurement.class_id.in_(some))) for some in batched(class_ids)]
        rows = [row for part in parts for row in part]
    return [_measured(row) for row in rows]


def _measured(row: Measurement) -> Measured:
    image = row.shot_id if row.shot_id is not None else -(row.guard_id or 0)
    facts = (row.class_id, row.nearest, row.distance, row.confidence, row.refused, row.harmful, row.version)
    return Measured(image, *facts)


def drop_unread(db: Session, model_id: ModelId, first_kept: Sequence[int]) -> None:
    """Keep what the kept versions wrote, and what the first of each run of kept versions reads from before it."""
    dropped = (Version.model_id == model_id, ~Version.kept)
    numbers = select(Version.number).where(*dropped)
    unread = set(
        db.scalars(select(Measurement.id).where(Measurement.model_id == model_id, Measurement.version.in_(numbers)))
    )
    for first in first_kept:
        read = (
            select(func.max(Measurement.id))
            .where(written_by_lineage(Measurement, model_id, first))
            .group_by(Measurement.shot_id, Measurement.guard_id)
        )
        unread -= set(db.scalars(read))
    for some in batched(sorted(unread)):
        db.execute(delete(Measurement).where(Measurement.id.in_(some)))
