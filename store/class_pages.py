"""Pages of a model's classes: searched by name, and sorted by time, name, shots or accuracy.

A search compares texts as Python does, the same on both databases: SQLite by itself folds the case of ASCII alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from store import classes
from store.database import batched
from store.models import ClassRow, ModelId

Sort = Literal["created", "name", "accuracy", "shots"]


@dataclass(frozen=True)
class Wanted:
    """Which classes, and in which order."""

    search: str = ""
    sort: Sort = "created"
    descending: bool = False


@dataclass(frozen=True)
class ClassPage:
    rows: list[ClassRow]
    total: int  # classes that match, on all pages
    more: bool


def page(
    db: Session,
    model_id: ModelId,
    wanted: Wanted,
    *,
    after: int | None,
    limit: int,
    accuracy: Callable[[], Mapping[int, float]] = dict,
) -> ClassPage:
    """`after`: the last class of the page before. `accuracy`: of those that were measured; the others come last."""
    if wanted == Wanted():
        rows = classes.page(db, model_id, after=after or 0, limit=limit + 1)
        return ClassPage(rows[:limit], classes.count(db, model_id), len(rows) > limit)
    text = wanted.search.strip().casefold()
    key = _sort_key(wanted, accuracy() if wanted.sort == "accuracy" else {})
    listed = db.execute(select(*_LISTED).where(ClassRow.model_id == model_id)).all()
    matching = [key(row) for row in listed if row.living and text in row.name.casefold()]
    matching.sort(reverse=wanted.descending)
    # A class that was deleted since the page before still has its place in the order.
    last = next((key(row) for row in listed if row.id == after), None)
    following = [one for one in matching if last is None or (one < last if wanted.descending else one > last)]
    chosen = [own_id for _, own_id in following[:limit]]
    return ClassPage(_read(db, model_id, chosen), len(matching), limit < len(following))


_LISTED = (ClassRow.id, ClassRow.name, ClassRow.shots, ClassRow.deleted_at.is_(None).label("living"))


def _sort_key(wanted: Wanted, accuracy: Mapping[int, float]) -> Callable[[Any], tuple[Any, int]]:
    """What a class is sorted by, and its id, so that no two are equal."""
    unmeasured = -1.0 if wanted.descending else 2.0
    keys: dict[Sort, Callable[[Any], Any]] = {
        "created": lambda row: row.id,
        "name": lambda row: row.name.casefold(),
        "shots": lambda row: row.shots,
        "accuracy": lambda row: accuracy.get(row.id, unmeasured),
    }
    return lambda row: (keys[wanted.sort](row), row.id)


def _read(db: Session, model_id: ModelId, class_ids: list[int]) -> list[ClassRow]:
    """These classes in this order."""
    rows = {
        row.id: row
        for some in batched(class_ids)
        for row in db.scalars(select(ClassRow).where(ClassRow.model_id == model_id, ClassRow.id.in_(some)))
    }
    return [rows[class_id] for class_id in class_ids]
