"""Versions: what a model knew and when, as one numbered history with parents.

A version's bank is each class's newest prototype among the version and its ancestors. So teaching one class writes one
row, however many there are, and an old version is found again exactly as it was.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Subquery, and_, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from store.database import batched, now
from store.errors import Conflict, NotThere
from store.models import Model, ModelId, Prototype, SessionId, Statistics, Version, VersionNumber, Weights

COPIES = 5  # B of the paper: how many copies of a prototype a session may read
Ranges = list[tuple[int, int]]  # inclusive


@dataclass(frozen=True)
class PrototypeRow:
    """What a version writes of one class; a vector of None says that the class is gone."""

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
class Remembered:
    """What is remembered of a class at a version: up to so many copies, newest last."""

    class_id: int
    shots: int
    initial: bytes
    copies: tuple[bytes, ...]
    held_out: bytes | None
    mean: bytes | None = None
    factor: bytes | None = None


def add(
    db: Session,
    model: Model,
    kind: str,
    *,
    parent: Version,
    classes: int,
    temperature: float,
    threshold: float | None,
    base: VersionNumber | None = None,
    weights: bytes | None = None,
    details: dict[str, Any] | None = None,
    verdict: str | None = None,
    session_id: SessionId | None = None,
    prototypes: Sequence[PrototypeRow] = (),
    statistics: Sequence[StatisticsRow] = (),
    serve: bool = True,
) -> Version:
    """The next version; the caller holds the model's lock. Without weights of its own it uses its parent's."""
    model.last_version = VersionNumber(model.last_version + 1)
    number = model.last_version
    version = Version(
        model_id=model.id,
        number=number,
        parent=parent.number,
        kind=kind,
        base=number if kind == "base" else parent.base if base is None else base,
        weights=number if weights is not None else parent.weights,
        classes=classes,
        temperature=temperature,
        threshold=threshold,
        verdict=verdict,
        details=details or {},
        kept=serve,
        session_id=session_id,
        created_at=now(db),
    )
    db.add(version)
    db.flush()
    if weights is not None:
        db.add(Weights(model_id=model.id, version=number, data=weights))
    if prototypes:
        db.execute(insert(Prototype), [_values(model.id, number, row) for row in prototypes])
    if statistics:
        db.execute(insert(Statistics), [_values(model.id, number, row) for row in statistics])
    if serve:
        model.head = number
    db.flush()
    return version


def _values(model_id: ModelId, number: VersionNumber, row: PrototypeRow | StatisticsRow) -> dict[str, Any]:
    return {"model_id": model_id, "version": number, **row.__dict__}


def get(db: Session, model_id: ModelId, number: int) -> Version:
    version = db.get(Version, (model_id, number)) if 0 <= number < 2**31 else None
    if version is None:
        newest = db.execute(select(func.max(Version.number)).where(Version.model_id == model_id)).scalar_one()
        raise NotThere(f"version {number} does not exist; the newest is {newest}")
    return version


def servable(db: Session, model_id: ModelId, number: int) -> Version:
    """A version whose content is there."""
    version = get(db, model_id, number)
    if version.verdict == "rejected":
        raise Conflict(
            f"version {number} was rejected by the gate and is never served: {version.details.get('reason')}"
        )
    if not version.kept:
        raise Conflict(f"version {number} is history: its weights are no longer kept (PROTOQUAD_KEEP_VERSIONS)")
    return version


def page(db: Session, model_id: ModelId, *, before: int | None, limit: int) -> list[Version]:
    """Newest first."""
    statement = select(Version).where(Version.model_id == model_id).order_by(Version.number.desc()).limit(limit)
    if before is not None:
        statement = statement.where(Version.number < before)
    return list(db.scalars(statement))


def lineage(db: Session, model_id: ModelId, number: int) -> list[int]:
    """The version and its ancestors, newest first."""
    rows = db.execute(select(Version.number, Version.parent).where(Version.model_id == model_id))
    parents: dict[int, int | None] = {row.number: row.parent for row in rows}
    line = []
    at: int | None = number
    while at is not None:
        line.append(at)
        at = parents.get(at)
    return line


def descends(db: Session, model_id: ModelId, number: int, ancestor: int) -> bool:
    return ancestor in lineage(db, model_id, number)


def remembered(db: Session, model_id: ModelId, number: int, *, copies: int = 1) -> list[Remembered]:
    """The bank at a version, by class id; `copies` beyond the newest are for learning only."""
    rows = _newest_rows(db, model_id, number, copies)
    statistics = _statistics(db, model_id, number) if copies > 1 else {}
    found = []
    for class_id, history in rows.items():  # newest first
        newest = history[0]
        if newest.vector is None:
            continue
        since = next((place for place, row in enumerate(history) if row.restart), len(history) - 1)
        own = history[: min(since + 1, copies)]
        told, mean, factor = statistics.get(class_id, (-1, None, None))
        if told < history[since].version:  # of the class as it was before it was learned anew
            mean = factor = None
        found.append(
            Remembered(
                class_id,
                newest.shots,
                bytes(history[since].vector),
                tuple(bytes(row.vector) for row in reversed(own)),
                newest.held_out,
                mean,
                factor,
            )
        )
    return found


def changes(db: Session, model_id: ModelId, since: int, number: int) -> list[PrototypeRow] | None:
    """What a version and its ancestors wrote after `since`, newest per class; None if it does not descend from it."""
    line = lineage(db, model_id, number)
    if since not in line:
        return None
    newer = line[: line.index(since)]
    found: dict[int, PrototypeRow] = {}
    for some in batched(newer):
        rows = db.scalars(
            select(Prototype)
            .where(Prototype.model_id == model_id, Prototype.version.in_(some))
            .order_by(Prototype.version.desc())
        )
        for row in rows:
            found.setdefault(row.class_id, PrototypeRow(row.class_id, row.vector, row.shots, row.restart, row.held_out))
    return list(found.values())


def prototype(db: Session, model_id: ModelId, number: int, class_id: int) -> PrototypeRow | None:
    """What a version knows of one class."""
    row = db.scalars(
        select(Prototype)
        .where(
            Prototype.model_id == model_id,
            Prototype.class_id == class_id,
            _within(Prototype.version, _ranges(db, model_id, number)),
        )
        .order_by(Prototype.version.desc())
        .limit(1)
    ).one_or_none()
    if row is None or row.vector is None:
        return None
    return PrototypeRow(row.class_id, row.vector, row.shots, row.restart, row.held_out)


def class_ids(db: Session, model_id: ModelId, number: int) -> list[int]:
    """The classes that a version knows."""
    ranked = _ranked(db, model_id, number)
    rows = db.execute(
        select(Prototype.class_id)
        .join(ranked, and_(ranked.c.class_id == Prototype.class_id, ranked.c.version == Prototype.version))
        .where(Prototype.model_id == model_id, _chosen(ranked, 1), Prototype.vector.is_not(None))
        .order_by(Prototype.class_id)
    )
    return [row.class_id for row in rows]


def _newest_rows(db: Session, model_id: ModelId, number: int, copies: int) -> dict[int, list[Any]]:
    """For each class the newest rows of the lineage, newest first, with the one it was last learned anew by."""
    ranked = _ranked(db, model_id, number)
    rows = db.execute(
        select(
            Prototype.class_id,
            Prototype.version,
            Prototype.vector,
            Prototype.shots,
            Prototype.restart,
            Prototype.held_out,
        )
        .join(ranked, and_(ranked.c.class_id == Prototype.class_id, ranked.c.version == Prototype.version))
        .where(Prototype.model_id == model_id, _chosen(ranked, copies))
        .order_by(Prototype.class_id, Prototype.version.desc())
    )
    history: dict[int, list[Any]] = {}
    for row in rows:
        history.setdefault(row.class_id, []).append(row)
    return history


def _ranked(db: Session, model_id: ModelId, number: int) -> Subquery:
    """The rows of a lineage, numbered by age within their class, and within those that began a class anew."""
    order = Prototype.version.desc()
    age = func.row_number().over(partition_by=Prototype.class_id, order_by=order)
    age_of_kind = func.row_number().over(partition_by=[Prototype.class_id, Prototype.restart], order_by=order)
    return (
        select(
            Prototype.class_id,
            Prototype.version,
            Prototype.restart,
            age.label("age"),
            age_of_kind.label("age_of_kind"),
        )
        .where(Prototype.model_id == model_id, _within(Prototype.version, _ranges(db, model_id, number)))
        .subquery()
    )


def _chosen(ranked: Subquery, copies: int) -> ColumnElement[bool]:
    newest: ColumnElement[bool] = ranked.c.age <= copies
    return newest if copies == 1 else or_(newest, and_(ranked.c.restart, ranked.c.age_of_kind == 1))


def _statistics(db: Session, model_id: ModelId, number: int) -> dict[int, tuple[int, bytes | None, bytes | None]]:
    rows = db.execute(
        select(Statistics.class_id, Statistics.version, Statistics.mean, Statistics.factor)
        .where(Statistics.model_id == model_id, _within(Statistics.version, _ranges(db, model_id, number)))
        .order_by(Statistics.version)
    )
    return {class_id: (version, mean, factor) for class_id, version, mean, factor in rows}


def _ranges(db: Session, model_id: ModelId, number: int) -> Ranges:
    """The lineage as runs of numbers. A rejected version wrote no row, so a run may pass over it."""
    rejected = set(
        db.scalars(select(Version.number).where(Version.model_id == model_id, Version.verdict == "rejected"))
    )
    ranges: Ranges = []
    for at in lineage(db, model_id, number):
        if ranges and all(between in rejected for between in range(at + 1, ranges[-1][0])):
            ranges[-1] = (at, ranges[-1][1])
        else:
            ranges.append((at, at))
    return ranges


def _within(column: Any, ranges: Ranges) -> ColumnElement[bool]:
    return or_(*(column.between(first, last) for first, last in ranges))


def weights(db: Session, model_id: ModelId, number: int) -> bytes | None:
    return db.execute(
        select(Weights.data).where(Weights.model_id == model_id, Weights.version == number)
    ).scalar_one_or_none()


def activate(db: Session, model: Model, number: int, living: Collection[int]) -> Version:
    """Serve this version; the caller holds the model's lock.

    Where it knows classes that were deleted since, a version without them is made on top of it and served instead:
    what was deleted does not come back.
    """
    version = servable(db, model.id, number)
    known = class_ids(db, model.id, number)
    gone = [PrototypeRow(class_id, None, 0, restart=True) for class_id in known if class_id not in living]
    if gone:
        return add(
            db,
            model,
            "rollback",
            parent=version,
            classes=len(known) - len(gone),
            temperature=version.temperature,
            threshold=version.threshold,
            details={**version.details, "without": [row.class_id for row in gone]},
            prototypes=gone,
        )
    model.head = version.number
    db.flush()
    return version


def prune(db: Session, model: Model, keep: int) -> list[int]:
    """Drop the content of refined versions beyond the newest `keep`, and of what stands on them; their rows stay.

    Base versions and what the head stands on are kept whatever their age.
    """
    versions = list(db.scalars(select(Version).where(Version.model_id == model.id, Version.kept)))
    refined = sorted((version.number for version in versions if version.kind == "incremental"), reverse=True)
    in_use = {version.weights for version in versions if version.number == model.head}
    gone = set(refined[keep:]) - in_use
    dropped: list[int] = sorted(version.number for version in versions if version.weights in gone)
    if dropped:
        own = and_(Version.model_id == model.id, Version.number.in_(dropped))
        db.execute(update(Version).where(own).values(kept=False))
        db.execute(delete(Weights).where(Weights.model_id == model.id, Weights.version.in_(gone)))
        _drop_unread_prototypes(db, model.id, [v for v in versions if v.number not in dropped])
    # Statistics are for learning on: two sessions back, those of the copies do as well.
    db.execute(
        delete(Statistics).where(Statistics.model_id == model.id, Statistics.version.not_in([*refined[:2], *in_use, 0]))
    )
    return dropped


def _drop_unread_prototypes(db: Session, model_id: ModelId, kept: Sequence[Version]) -> None:
    """Keep what the kept versions wrote, and what the first of each run of them reads from before it."""
    numbers = {version.number for version in kept}
    needed: set[tuple[int, int]] = set()
    for first in (version.number for version in kept if version.parent not in numbers):
        needed |= _read_by(db, model_id, first)
    present = db.execute(select(Prototype.class_id, Prototype.version).where(Prototype.model_id == model_id))
    unread: dict[int, list[int]] = {}
    for class_id, version in present:
        if version not in numbers and (class_id, version) not in needed:
            unread.setdefault(version, []).append(class_id)
    for number, class_ids in unread.items():
        for some in batched(class_ids):
            own = and_(Prototype.model_id == model_id, Prototype.version == number, Prototype.class_id.in_(some))
            db.execute(delete(Prototype).where(own))


def _read_by(db: Session, model_id: ModelId, number: int) -> set[tuple[int, int]]:
    ranked = _ranked(db, model_id, number)
    rows = db.execute(select(ranked.c.class_id, ranked.c.version).where(_chosen(ranked, COPIES)))
    return {(class_id, version) for class_id, version in rows}
