"""Dropping the content of old versions: weights, prototypes and statistics. Their rows in `versions` stay."""

from collections.abc import Sequence

from sqlalchemy import and_, bindparam, delete, select, update
from sqlalchemy.orm import Session, aliased

from store import measurements
from store.bank_rows import COPIES, rows_to_read
from store.catalogue import UNTAUGHT
from store.database import batched
from store.models import Model, ModelId, Prototype, Statistics, Version, Weights
from store.versions import get


def prune(db: Session, model: Model, keep: int) -> list[int]:
    """Drop the content of refined versions beyond the newest `keep`, and of the versions that use their weights.

    Base versions, and the weights that the head uses, are kept whatever their age. Returns the numbers of the versions
    that were dropped.
    """
    refined = _newest_refined(db, model.id, max(keep, 2))
    in_use = get(db, model.id, model.head).weights
    dropped: list[int] = []
    if len(refined) >= keep:
        dropped = _drop_content(db, model.id, _older_weights(db, model.id, refined[keep - 1], besides=in_use))
    if dropped:
        _drop_unread_prototypes(db, model.id)
        measurements.drop_unread(db, model.id, _first_kept(db, model.id))
    # Only learning reads statistics. For a class that the last two sessions did not touch, its copies serve as well.
    unread = Statistics.version.not_in([*refined[:2], in_use, UNTAUGHT])
    db.execute(delete(Statistics).where(Statistics.model_id == model.id, unread))
    return dropped


def _newest_refined(db: Session, model_id: ModelId, limit: int) -> list[int]:
    """The newest refined versions that are kept, newest first."""
    refined = (Version.model_id == model_id, Version.kept, Version.kind == "incremental")
    return list(db.scalars(select(Version.number).where(*refined).order_by(Version.number.desc()).limit(limit)))


def _older_weights(db: Session, model_id: ModelId, number: int, *, besides: int) -> list[int]:
    """Refined versions older than this one whose weights are stored. Reads the table of weights, which stays small."""
    version = and_(Version.model_id == Weights.model_id, Version.number == Weights.version)
    older = (Weights.model_id == model_id, Weights.version < number, Weights.version != besides)
    refined = select(Weights.version).join(Version, version).where(*older, Version.kind == "incremental")
    return list(db.scalars(refined.order_by(Weights.version)))


def _drop_content(db: Session, model_id: ModelId, weights: Sequence[int]) -> list[int]:
    """Delete these weights; returns the versions that used them."""
    dropped: list[int] = []
    for some in batched(weights):
        # No version older than the weights uses them, so only the versions since then are read.
        users = (Version.model_id == model_id, Version.kept, Version.number >= some[0], Version.weights.in_(some))
        dropped += db.scalars(select(Version.number).where(*users))
        db.execute(update(Version).where(*users).values(kept=False))
        db.execute(delete(Weights).where(Weights.model_id == model_id, Weights.version.in_(some)))
    return sorted(dropped)


def _drop_unread_prototypes(db: Session, model_id: ModelId) -> None:
    """Keep what the kept versions wrote, and what the first of each run of kept versions reads from before it."""
    version = and_(Version.model_id == Prototype.model_id, Version.number == Prototype.version)
    dropped = select(Prototype.class_id, Prototype.version).join(Version, version).where(~Version.kept)
    rows = db.execute(dropped.where(Prototype.model_id == model_id))
    unread = {(class_id, number) for class_id, number in rows}
    for first in _first_kept(db, model_id):
        if unread:
            oldest = min(number for _, number in unread)
            read = db.execute(rows_to_read(model_id, first, COPIES, since=oldest))
            unread -= {(class_id, number) for class_id, number in read}
    if unread:
        own = (Prototype.class_id == bindparam("its_class"), Prototype.version == bindparam("its_version"))
        db.connection().execute(
            delete(Prototype).where(Prototype.model_id == model_id, *own),
            [{"its_class": class_id, "its_version": number} for class_id, number in sorted(unread)],
        )


def _first_kept(db: Session, model_id: ModelId) -> list[int]:
    """Kept versions whose parent is not kept."""
    parent = aliased(Version)
    first = (Version.model_id == model_id, Version.kept, ~parent.kept)
    own_parent = and_(parent.model_id == Version.model_id, parent.number == Version.parent)
    return list(db.scalars(select(Version.number).join(parent, own_parent).where(*first)))
