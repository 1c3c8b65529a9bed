"""Versions: what a model knew and when, as one numbered history with parents.

A version's bank is each class's newest prototype among the version and its ancestors. So teaching one class writes one
row, however many there are, and an old version is found again exactly as it was.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.orm import Session, aliased

from store.catalogue import UNTAUGHT
from store.database import batched, now
from store.errors import Conflict, NotThere
from store.models import Model, ModelId, Prototype, SessionId, Statistics, Version, VersionNumber, Weights

COPIES = 5  # B of the paper: how many copies of a prototype a session may read


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


@dataclass(frozen=True)
class NewVersion:
    """Everything that is written of a version. Without weights of its own it uses its parent's."""

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
    if new.prototypes:
        db.execute(insert(Prototype), [_values(model.id, number, row) for row in new.prototypes])
    if new.statistics:
        db.execute(insert(Statistics), [_values(model.id, number, row) for row in new.statistics])
    if new.serve:
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
    line = _line(model_id, number)
    return list(db.scalars(select(line.c.number).order_by(line.c.number.desc())))


def descends(db: Session, model_id: ModelId, number: int, ancestor: int) -> bool:
    """Whether `ancestor` is the version itself or one of its ancestors."""
    line = _line(model_id, number, since=ancestor)
    return db.scalars(select(line.c.number).where(line.c.number == ancestor)).one_or_none() is not None


def _line(model_id: ModelId, number: int, *, since: int = 0) -> CTE:
    """The version and its ancestors whose number is at least `since`, as a recursive query.

    The database walks from parent to parent, so the statement stays the same however often the history forks, and a
    question about the recent past walks no further than that. A parent's number is lower than its child's: a row that
    says otherwise, which only a foreign archive could bring, ends the walk and cannot make it go round in a circle.
    """
    start = (Version.model_id == model_id, Version.number == number, Version.number >= since)
    line = select(Version.number, Version.parent).where(*start).cte("line", recursive=True)
    # Not a join: with outdated statistics PostgreSQL would read all versions of the model again at every step.
    grandparent = select(Version.parent).where(Version.model_id == model_id, Version.number == line.c.parent)
    older = select(line.c.parent, grandparent.scalar_subquery()).where(
        line.c.parent >= since, line.c.parent < line.c.number
    )
    return line.union_all(older)


def _on_line(
    table: type[Prototype | Statistics], model_id: ModelId, number: int, *, since: int = 0
) -> ColumnElement[bool]:
    """Whether a row was written by the version or one of its ancestors, not looking further back than `since`."""
    line = _line(model_id, number, since=since)
    # "IS TRUE" has PostgreSQL look each row up in a hash table of the line. A plain IN is a join to its planner, which
    # takes the line for short and reads it again for every row.
    on_line = table.version.in_(select(line.c.number)).is_(true())
    return and_(table.model_id == model_id, table.version.between(since, number), on_line)


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
    if not descends(db, model_id, number, since):
        return None
    rows = db.scalars(
        select(Prototype)
        .where(_chosen(model_id, _newest(model_id, number, since=since + 1)))
        .order_by(Prototype.version.desc(), Prototype.class_id)
    )
    return [PrototypeRow(row.class_id, row.vector, row.shots, row.restart, row.held_out) for row in rows]


def prototype(db: Session, model_id: ModelId, number: int, class_id: int) -> PrototypeRow | None:
    """What a version knows of one class."""
    row = db.scalars(
        select(Prototype)
        .where(Prototype.class_id == class_id, _on_line(Prototype, model_id, number))
        .order_by(Prototype.version.desc())
        .limit(1)
    ).one_or_none()
    if row is None or row.vector is None:
        return None
    return PrototypeRow(row.class_id, row.vector, row.shots, row.restart, row.held_out)


def class_ids(db: Session, model_id: ModelId, number: int) -> list[int]:
    """The classes that a version knows."""
    known = and_(_chosen(model_id, _newest(model_id, number)), Prototype.vector.is_not(None))
    return list(db.scalars(select(Prototype.class_id).where(known).order_by(Prototype.class_id)))


def _newest_rows(db: Session, model_id: ModelId, number: int, copies: int) -> dict[int, list[Any]]:
    """For each class the newest rows of the lineage, newest first, with the one it was last learned anew by."""
    chosen = _newest(model_id, number) if copies == 1 else _read_by(model_id, number, copies)
    rows = db.execute(
        select(
            Prototype.class_id,
            Prototype.version,
            Prototype.vector,
            Prototype.shots,
            Prototype.restart,
            Prototype.held_out,
        )
        .where(_chosen(model_id, chosen))
        .order_by(Prototype.class_id, Prototype.version.desc())
    )
    history: dict[int, list[Any]] = {}
    for row in rows:
        history.setdefault(row.class_id, []).append(row)
    return history


def _chosen(model_id: ModelId, classes_and_versions: Select[int, VersionNumber]) -> ColumnElement[bool]:
    return and_(Prototype.model_id == model_id, tuple_(Prototype.class_id, Prototype.version).in_(classes_and_versions))


def _newest(model_id: ModelId, number: int, *, since: int = 0) -> Select[int, VersionNumber]:
    """Class and version of each class's newest row; an index alone answers it."""
    return (
        select(Prototype.class_id, func.max(Prototype.version).label("version"))
        .where(_on_line(Prototype, model_id, number, since=since))
        .group_by(Prototype.class_id)
    )


def _read_by(model_id: ModelId, number: int, copies: int, *, since: int = 0) -> Select[int, VersionNumber]:
    """Class and version of each class's newest `copies` rows, and of the newest that began it anew."""
    order = Prototype.version.desc()
    age = func.row_number().over(partition_by=Prototype.class_id, order_by=order)
    age_of_kind = func.row_number().over(partition_by=[Prototype.class_id, Prototype.restart], order_by=order)
    ranked = (
        select(
            Prototype.class_id,
            Prototype.version,
            Prototype.restart,
            age.label("age"),
            age_of_kind.label("age_of_kind"),
        )
        .where(_on_line(Prototype, model_id, number, since=since))
        .subquery()
    )
    anew = and_(ranked.c.restart, ranked.c.age_of_kind == 1)
    return select(ranked.c.class_id, ranked.c.version).where(or_(ranked.c.age <= copies, anew))


def _statistics(db: Session, model_id: ModelId, number: int) -> dict[int, tuple[int, bytes | None, bytes | None]]:
    rows = db.execute(
        select(Statistics.class_id, Statistics.version, Statistics.mean, Statistics.factor)
        .where(_on_line(Statistics, model_id, number))
        .order_by(Statistics.version)
    )
    return {class_id: (version, mean, factor) for class_id, version, mean, factor in rows}


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
            NewVersion(
                "rollback",
                parent=version,
                classes=len(known) - len(gone),
                temperature=version.temperature,
                threshold=version.threshold,
                details={**version.details, "without": [row.class_id for row in gone]},
                prototypes=gone,
            ),
        )
    model.head = version.number
    db.flush()
    return version


def prune(db: Session, model: Model, keep: int) -> list[int]:
    """Drop the content of refined versions beyond the newest `keep`, and of what stands on them; their rows stay.

    Base versions and what the head stands on are kept whatever their age.
    """
    refined = _newest_refined(db, model.id, max(keep, 2))
    in_use = get(db, model.id, model.head).weights
    dropped: list[int] = []
    if len(refined) >= keep:
        dropped = _drop_content(db, model.id, _weights_before(db, model.id, refined[keep - 1], besides=in_use))
    if dropped:
        _drop_unread_prototypes(db, model.id)
    # Statistics are for learning on: two sessions back, those of the copies do as well.
    db.execute(
        delete(Statistics).where(
            Statistics.model_id == model.id, Statistics.version.not_in([*refined[:2], in_use, UNTAUGHT])
        )
    )
    return dropped


def _newest_refined(db: Session, model_id: ModelId, limit: int) -> list[int]:
    """The newest refined versions that are kept, newest first."""
    return list(
        db.scalars(
            select(Version.number)
            .where(Version.model_id == model_id, Version.kept, Version.kind == "incremental")
            .order_by(Version.number.desc())
            .limit(limit)
        )
    )


def _weights_before(db: Session, model_id: ModelId, number: int, *, besides: int) -> list[int]:
    """Refined versions older than this one whose weights are stored. Asks the table of weights, which stays small."""
    return list(
        db.scalars(
            select(Weights.version)
            .join(Version, and_(Version.model_id == Weights.model_id, Version.number == Weights.version))
            .where(Weights.model_id == model_id, Weights.version < number, Weights.version != besides)
            .where(Version.kind == "incremental")
            .order_by(Weights.version)
        )
    )


def _drop_content(db: Session, model_id: ModelId, gone: Sequence[int]) -> list[int]:
    """Forget these weights; answers which versions stood on them."""
    dropped: list[int] = []
    for some in batched(gone):
        # Nothing older than the weights stands on them, so only the versions since then are looked at.
        standing = (Version.model_id == model_id, Version.kept, Version.number >= some[0], Version.weights.in_(some))
        dropped += db.scalars(select(Version.number).where(*standing))
        db.execute(update(Version).where(*standing).values(kept=False))
        db.execute(delete(Weights).where(Weights.model_id == model_id, Weights.version.in_(some)))
    return sorted(dropped)


def _drop_unread_prototypes(db: Session, model_id: ModelId) -> None:
    """Keep what the kept versions wrote, and what the first of each run of them reads from before it."""
    version = and_(Version.model_id == Prototype.model_id, Version.number == Prototype.version)
    rows = db.execute(
        select(Prototype.class_id, Prototype.version)
        .join(Version, version)
        .where(Prototype.model_id == model_id, ~Version.kept)
    )
    unread = {(class_id, number) for class_id, number in rows}
    for first in _first_kept(db, model_id):
        if unread:
            oldest = min(number for _, number in unread)
            read = db.execute(_read_by(model_id, first, COPIES, since=oldest))
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
    return list(
        db.scalars(
            select(Version.number)
            .join(parent, and_(parent.model_id == Version.model_id, parent.number == Version.parent))
            .where(Version.model_id == model_id, Version.kept, ~parent.kept)
        )
    )
