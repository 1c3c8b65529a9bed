"""The stored images of a class, one by one, as callers see them: its shots, then its guard images.

Shots and guard images are in two tables, each with its own ids. Here a guard image has the negative of its id, so that
one number names an image of either kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import ColumnElement, func, null, select
from sqlalchemy.orm import Session

from store.database import batched
from store.errors import NotThere
from store.models import GuardImage, ModelId, Shot

LARGEST = 2**63 - 1


@dataclass(frozen=True)
class ImageFacts:
    """All about a stored image but its bytes."""

    id: int  # of a guard image: the negative of its own
    class_id: int
    sha256: str
    bytes: int
    filename: str | None = None
    created_at: datetime | None = None

    @property
    def kind(self) -> Literal["shot", "guard"]:
        return "shot" if self.id > 0 else "guard"


def page(db: Session, model_id: ModelId, class_id: int, *, after: int | None, limit: int) -> list[ImageFacts]:
    """Shots in the order in which they came, then guard images; `after`: the last image of the page before."""
    found: list[ImageFacts] = []
    if after is None or after > 0:
        found = _facts(db, model_id, Shot, [Shot.class_id == class_id, Shot.id > (after or 0)], limit)
        after = 0
    if len(found) < limit:
        own = [GuardImage.class_id == class_id, GuardImage.id > -after]
        found += _facts(db, model_id, GuardImage, own, limit - len(found))
    return found


def get(db: Session, model_id: ModelId, class_id: int, image_id: int) -> ImageFacts:
    table = Shot if image_id > 0 else GuardImage
    known = abs(image_id) <= LARGEST
    own = [table.class_id == class_id, table.id == abs(image_id)]
    found = _facts(db, model_id, table, own, 1) if known else []
    if not found:
        raise NotThere(f"class {class_id} has no image {image_id}; GET /classes/{class_id}/shots lists them")
    return found[0]


def data(db: Session, image_id: int) -> bytes:
    """The image as it was sent. Raises NotThere if it was deleted meanwhile."""
    return _bytes(db, image_id, small=False)


def small_form(db: Session, image_id: int) -> bytes:
    """The image, or its smaller copy if decoding the image itself is costly."""
    return _bytes(db, image_id, small=True)


def count(db: Session, model_id: ModelId, class_id: int) -> int:
    numbers = [
        db.execute(select(func.count()).where(table.model_id == model_id, table.class_id == class_id)).scalar_one()
        for table in (Shot, GuardImage)
    ]
    return sum(numbers)


def some_of_each(
    db: Session, model_id: ModelId, class_ids: Sequence[int] | None, limit: int
) -> list[tuple[int, int, str]]:
    """Id, class and digest of at most `limit` shots: the first of every class, then the second of each, and so on."""
    rank = func.row_number().over(partition_by=Shot.class_id, order_by=Shot.id).label("rank")
    ranked = select(Shot.id, Shot.class_id, Shot.sha256, rank).where(Shot.model_id == model_id)
    if class_ids is not None:
        ranked = ranked.where(Shot.class_id.in_(class_ids))
    found = ranked.subquery()
    rows = db.execute(
        select(found.c.id, found.c.class_id, found.c.sha256).order_by(found.c.rank, found.c.id).limit(limit)
    )
    return [(own_id, class_id, sha256) for own_id, class_id, sha256 in rows]


@dataclass(frozen=True)
class Stored:
    """What is stored of a class."""

    shots: int = 0
    cover: int | None = None  # an image to show for it


def stored(db: Session, model_id: ModelId, class_ids: Sequence[int]) -> dict[int, Stored]:
    """What is stored of each of these classes; those of which nothing is stored are left out."""
    found: dict[int, Stored] = {}
    for some in batched(class_ids):
        for table in (GuardImage, Shot):  # shots last: one of them is shown rather than a guard image
            rows = db.execute(
                select(table.class_id, func.count(), func.min(table.id))
                .where(table.model_id == model_id, table.class_id.in_(some))
                .group_by(table.class_id)
            )
            for class_id, number, first in rows:
                found[class_id] = Stored(number, first) if table is Shot else Stored(0, -first)
    return found


def _facts(
    db: Session,
    model_id: ModelId,
    table: type[Shot] | type[GuardImage],
    conditions: Sequence[ColumnElement[bool]],
    limit: int,
) -> list[ImageFacts]:
    named = (Shot.filename, Shot.created_at) if table is Shot else (null(), null())
    sign = 1 if table is Shot else -1
    rows = db.execute(
        select(table.id, table.class_id, table.sha256, func.length(table.data), *named)
        .where(table.model_id == model_id, *conditions)
        .order_by(table.id)
        .limit(limit)
    )
    return [ImageFacts(sign * own_id, *facts) for own_id, *facts in rows]


def _bytes(db: Session, image_id: int, *, small: bool) -> bytes:
    table = Shot if image_id > 0 else GuardImage
    column = func.coalesce(Shot.scaled, Shot.data) if small and table is Shot else table.data
    found = db.execute(select(column).where(table.id == abs(image_id))).scalar_one_or_none()
    if found is None:
        raise NotThere("the image was deleted meanwhile")
    return bytes(found)
