"""Versions: what a model knew and when, as one numbered history in which every version has a parent."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from store import measurements, outbox
from store.bank_rows import PrototypeRow, StatisticsRow, class_ids
from store.database import now
from store.errors import Conflict, NotThere
from store.measurements import Measured
from store.models import Model, ModelId, Prototype, SessionId, Statistics, Version, VersionNumber, Weights


@dataclass(frozen=True)
class NewVersion:
    """Everything that is written for a version. Without weights of its own it uses those of its parent."""

    kind: str
    parent: Version
    classes: int
    temperature: float
    threshold: float | None
    weights: bytes | None = None
    details: dict[str, Any] = field(default_factory=dict)
    verdict: str | None = None
    session_id: SessionId | None = None
    prototypes: Sequence[PrototypeRow] = ()
    statistics: Sequence[StatisticsRow] = ()
    measurements: Sequence[Measured] = ()
    serve: bool = True  # whether it becomes the head


def add(db: Session, model: Model, new: NewVersion) -> Version:
    """The next version of the model; the caller holds the model's lock."""
    model.last_version = number = VersionNumber(model.last_version + 1)
    version = Version(
        model_id=model.id,
        number=number,
        parent=new.parent.number,
        kind=new.kind,
        base=number if new.kind == "base" else new.parent.base,
        weights=number if new.weights is not None else new.parent.weights,
        classes=new.classes,
        temperature=new.temperature,
        threshold=new.threshold,
        verdict=new.verdict,
        details=new.details,
        kept=new.serve,
        session_id=new.session_id,
        created_at=now(db),
    )
    db.add(version)
    db.flush()
    if new.weights is not None:
        db.add(Weights(model_id=model.id, version=number, data=new.weights))
    for table, rows in ((Prototype, new.prototypes), (Statistics, new.statistics)):
        if rows:
            db.execute(insert(table), [{"model_id": model.id, "version": number, **row.__dict__} for row in rows])
    measurements.add(db, model.id, number, new.measurements)
    if new.serve:
        model.head = number
    db.flush()
    _tell(db, model, version)
    return version


def _tell(db: Session, model: Model, version: Version) -> None:
    """Webhooks hear of it if this transaction commits, and only then."""
    about = {"version": version.number, "kind": version.kind, "verdict": version.verdict, "session": version.session_id}
    if version.verdict == "rejected":
        outbox.add(db, model, "session.rejected", {**about, "reason": version.details.get("reason")})
    else:
        outbox.add(db, model, "version.published", {**about, "classes": version.classes})


def get(db: Session, model_id: ModelId, number: int) -> Version:
    version = db.get(Version, (model_id, number)) if 0 <= number < 2**31 else None
    if version is None:
        newest = db.execute(select(func.max(Version.number)).where(Version.model_id == model_id)).scalar_one()
        raise NotThere(f"version {number} does not exist; the newest is {newest}")
    return version


def servable(db: Session, model_id: ModelId, number: int) -> Version:
    """A version whose content is still stored; raises Conflict otherwise."""
    version = get(db, model_id, number)
    if version.verdict == "rejected":
        raise Conflict(
            f"version {number} was rejected by the gate and is never served: {version.details.get('reason')}"
        )
    if not version.kept:
        raise Conflict(f"version {number} cannot be served: its weights are no longer kept (PROTOQUAD_KEEP_VERSIONS)")
    return version


def servable_numbers(db: Session, model_id: ModelId, *, limit: int) -> list[int]:
    """Of the versions that can be served, newest first."""
    kept = select(Version.number).where(
        Version.model_id == model_id, Version.kept, Version.verdict.is_distinct_from("rejected")
    )
    return list(db.scalars(kept.order_by(Version.number.desc()).limit(limit)))


def page(db: Session, model_id: ModelId, *, before: int | None, limit: int) -> list[Version]:
    """Newest first."""
    statement = select(Version).where(Version.model_id == model_id).order_by(Version.number.desc()).limit(limit)
    if before is not None:
        statement = statement.where(Version.number < before)
    return list(db.scalars(statement))


def weights(db: Session, model_id: ModelId, number: int) -> bytes | None:
    return db.execute(
        select(Weights.data).where(Weights.model_id == model_id, Weights.version == number)
    ).scalar_one_or_none()


def activate(db: Session, model: Model, number: int, living: Collection[int]) -> Version:
    """Make this version the head; the caller holds the model's lock.

    If it knows classes that were deleted since, a version without them is added on top of it and becomes the head
    instead: a deleted class does not come back.
    """
    version = servable(db, model.id, number)
    known = class_ids(db, model.id, number)
    gone = [PrototypeRow(class_id, None, 0, restart=True) for class_id in known if class_id not in living]
    if gone:
        rollback = NewVersion(
            "rollback",
            parent=version,
            classes=len(known) - len(gone),
            temperature=version.temperature,
            threshold=version.threshold,
            details={**version.details, "without": [row.class_id for row in gone]},
            prototypes=gone,
        )
        return add(db, model, rollback)
    model.head = version.number
    db.flush()
    return version
