"""Samples: images that predictions have kept, until somebody says what they show, or they are too many or too old."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from store import catalogue, outbox
from store.classes import digest
from store.database import batched, images_erased, now
from store.errors import NotThere
from store.models import ModelId, Sample

_FACTS = (
    *(Sample.id, Sample.version, Sample.weights, Sample.unknown, Sample.confidence, Sample.margin),
    *(Sample.top, Sample.feature, Sample.sha256, Sample.created_at),
)


@dataclass(frozen=True)
class SampleFacts:
    """All about a sample but its bytes."""

    id: int
    version: int
    weights: int
    unknown: bool
    confidence: float
    margin: float
    top: dict[str, Any]
    feature: bytes
    sha256: str
    created_at: datetime


@dataclass(frozen=True)
class NewSample:
    id: int
    model_id: ModelId
    version: int
    weights: int
    unknown: bool
    confidence: float
    margin: float
    top: dict[str, Any]
    feature: bytes
    data: bytes


@dataclass(frozen=True)
class Bounds:
    """Of the samples of one model."""

    images: int
    bytes: int
    days: float


def add(db: Session, new: Sequence[NewSample]) -> None:
    moment = now(db)
    db.execute(insert(Sample), [{**one.__dict__, "sha256": digest(one.data), "created_at": moment} for one in new])


def enforce(db: Session, model_id: ModelId, bounds: Bounds) -> int:
    """Erase the oldest samples if a bound is exceeded; returns how many.

    A twentieth more than need be, so that a full inbox is not pruned for every new sample.
    """
    oldest, size = now(db) - timedelta(days=bounds.days), func.length(Sample.data)
    found = select(func.count(), func.coalesce(func.sum(size), 0), func.min(Sample.created_at))
    number, length, first = db.execute(found.where(Sample.model_id == model_id)).one()
    if number <= bounds.images and length <= bounds.bytes and (first is None or first >= oldest):
        return 0
    if number > bounds.images or length > bounds.bytes:
        _tell(db, model_id, number, length)
    rows = select(Sample.id, size, Sample.created_at).where(Sample.model_id == model_id).order_by(Sample.id.desc())
    most, most_bytes = bounds.images - bounds.images // 20, bounds.bytes - bounds.bytes // 20
    gone, total = [], 0
    for place, (own_id, own_size, created_at) in enumerate(db.execute(rows)):
        total += own_size
        if place >= most or total > most_bytes or created_at < oldest:
            gone.append(own_id)
    return _delete(db, model_id, gone)


def _tell(db: Session, model_id: ModelId, images: int, length: int) -> None:
    """Webhooks hear that images leave the inbox before somebody has looked at them."""
    model = catalogue.find_by_id(db, model_id)
    if model is not None:
        outbox.add(db, model, "inbox.full", {"images": images, "bytes": length})


def everything(db: Session, model_id: ModelId) -> list[SampleFacts]:
    """Newest first; their number is bounded."""
    rows = db.execute(select(*_FACTS).where(Sample.model_id == model_id).order_by(Sample.id.desc()))
    return [SampleFacts(*row) for row in rows]


def count(db: Session, model_id: ModelId) -> int:
    return db.execute(select(func.count()).where(Sample.model_id == model_id)).scalar_one()


def newest(db: Session, model_id: ModelId) -> int:
    """The highest id; 0 if there is none."""
    return db.execute(select(func.max(Sample.id)).where(Sample.model_id == model_id)).scalar_one() or 0


def get(db: Session, model_id: ModelId, own_id: int) -> SampleFacts:
    row = db.execute(select(*_FACTS).where(Sample.model_id == model_id, Sample.id == own_id)).one_or_none()
    if row is None:
        raise NotThere(f"there is no sample {own_id}; it was resolved, dismissed or too old; GET /inbox lists them")
    return SampleFacts(*row)


def data(db: Session, model_id: ModelId, own_id: int) -> bytes:
    found = db.execute(select(Sample.data).where(Sample.model_id == model_id, Sample.id == own_id)).scalar_one_or_none()
    if found is None:
        raise NotThere(f"there is no sample {own_id}; it was resolved, dismissed or too old; GET /inbox lists them")
    return bytes(found)


def take(db: Session, model_id: ModelId, own_ids: Sequence[int]) -> None:
    """Erase these samples; raises NotThere, and erases none, if one of them is gone."""
    if _delete(db, model_id, own_ids) != len(set(own_ids)):
        raise NotThere(
            "some of these samples were resolved or dismissed meanwhile; GET /inbox lists those that are left"
        )


def clear(db: Session, model_id: ModelId) -> None:
    """Erase all samples of a model."""
    db.execute(delete(Sample).where(Sample.model_id == model_id))
    images_erased(db)


def _delete(db: Session, model_id: ModelId, own_ids: Collection[int]) -> int:
    gone = 0
    for some in batched(sorted(set(own_ids))):
        erased = delete(Sample).where(Sample.model_id == model_id, Sample.id.in_(some)).returning(Sample.id)
        gone += len(db.execute(erased).all())
    if gone:
        images_erased(db)
    return gone
