"""Classes and their images: shots, with which a class was taught, and guard images, on which it is measured."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from sqlalchemy import ColumnElement, and_, delete, func, insert, null, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from store.database import batched, images_erased, now
from store.errors import NameTaken, NotThere
from store.models import ClassRow, GuardImage, Model, ModelId, SessionId, Shot, VersionNumber
from store.names import file_name

_ImageTable = type[Shot] | type[GuardImage]


@dataclass(frozen=True)
class StoredImage:
    """A stored image of a class."""

    class_id: int
    sha256: str
    data: bytes
    scaled: bytes | None = None  # a smaller copy, if decoding the image itself is costly
    id: int = 0  # of a guard image: the negative of its own


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def add(
    db: Session,
    model: Model,
    name: str,
    *,
    shots: int,
    since: VersionNumber,
    status: str = "provisional",
    session_id: SessionId | None = None,
) -> ClassRow:
    """A new class; the caller holds the model's lock."""
    require_free(db, model.id, name)
    model.last_class += 1
    row = ClassRow(
        model_id=model.id,
        id=model.last_class,
        name=name,
        status=status,
        shots=shots,
        since=since,
        session_id=session_id,
        created_at=now(db),
    )
    db.add(row)
    db.flush()
    return row


def require_free(db: Session, model_id: ModelId, name: str, *, besides: int | None = None) -> None:
    """Raises NameTaken if another class of the model has this name."""
    taken = db.scalars(select(ClassRow).where(_is_living(model_id), ClassRow.name == name)).one_or_none()
    if taken is not None and taken.id != besides:
        raise NameTaken(
            f"the name '{name}' is taken by class {taken.id}; post more images to /classes/{taken.id}/shots, "
            "or delete that class first"
        )


def taken_names(db: Session, model_id: ModelId, names: Collection[str]) -> list[str]:
    """Which of these names classes of the model already have, in alphabetical order."""
    return sorted(set(db.scalars(select(ClassRow.name).where(_is_living(model_id)))).intersection(names))


def get(db: Session, model_id: ModelId, class_id: int) -> ClassRow:
    row = db.get(ClassRow, (model_id, class_id)) if 0 < class_id < 2**31 else None
    if row is None or row.deleted_at is not None:
        raise NotThere(f"there is no class {class_id}; GET /classes lists them")
    return row


def page(db: Session, model_id: ModelId, *, after: int, limit: int) -> list[ClassRow]:
    following = select(ClassRow).where(_is_living(model_id), ClassRow.id > after)
    return list(db.scalars(following.order_by(ClassRow.id).limit(limit)))


def count(db: Session, model_id: ModelId) -> int:
    return db.execute(select(func.count()).where(_is_living(model_id))).scalar_one()


def names(db: Session, model_id: ModelId) -> dict[int, str]:
    """Names of all classes, including deleted ones: an old version may still know them."""
    rows = db.execute(select(ClassRow.id, ClassRow.name).where(ClassRow.model_id == model_id))
    return {row.id: row.name for row in rows}


def rename(db: Session, model: Model, class_id: int, name: str) -> ClassRow:
    row = get(db, model.id, class_id)
    require_free(db, model.id, name, besides=class_id)
    row.name = name
    model.renames += 1
    db.flush()
    return row


def erase(db: Session, model_id: ModelId, class_id: int) -> None:
    """Mark a class as deleted and erase its images."""
    row = get(db, model_id, class_id)
    row.deleted_at = now(db)
    for table in (Shot, GuardImage):
        db.execute(delete(table).where(table.model_id == model_id, table.class_id == class_id))
    images_erased(db)
    db.flush()


def delete_shot(db: Session, model_id: ModelId, key: int) -> None:
    """Erase a shot; what its class makes of the others is the caller's business."""
    db.execute(delete(Shot).where(Shot.model_id == model_id, Shot.id == key))
    images_erased(db)


def move_shot(db: Session, model_id: ModelId, key: int, class_id: int) -> None:
    """Make a shot another class's."""
    db.execute(update(Shot).where(Shot.model_id == model_id, Shot.id == key).values(class_id=class_id))


def move_images(db: Session, model_id: ModelId, source: int, class_id: int) -> None:
    """Make all shots and guard images of a class another one's."""
    for table in (Shot, GuardImage):
        own = (table.model_id == model_id, table.class_id == source)
        db.execute(update(table).where(*own).values(class_id=class_id))


def waiting(db: Session, model_id: ModelId) -> list[ClassRow]:
    """Classes that wait for a session: none has refined them since their shots last changed."""
    provisional = select(ClassRow).where(_is_living(model_id), ClassRow.status == "provisional")
    return list(db.scalars(provisional.order_by(ClassRow.id)))


def living(db: Session, model_id: ModelId) -> dict[int, int]:
    """The classes that are not deleted, each with its revision."""
    rows = db.execute(select(ClassRow.id, ClassRow.revision).where(_is_living(model_id)))
    return {row.id: row.revision for row in rows}


def _is_living(model_id: ModelId) -> ColumnElement[bool]:
    return and_(ClassRow.model_id == model_id, ClassRow.deleted_at.is_(None))


def mark_learned(db: Session, model_id: ModelId, class_ids: Iterable[int]) -> None:
    """A session has refined these classes."""
    for some in batched(list(class_ids)):
        own = (ClassRow.model_id == model_id, ClassRow.id.in_(some))
        db.execute(update(ClassRow).where(*own).values(status="learned"))


def add_shots(
    db: Session,
    model_id: ModelId,
    class_id: int,
    images: Iterable[bytes],
    scaled: Sequence[bytes | None] | None = None,
    filenames: Sequence[str | None] | None = None,
) -> None:
    """Store images of a class, with a smaller copy of each that is costly to decode. Holds one at a time in memory."""
    moment = now(db)
    for data, small, name in zip(images, scaled or repeat(None), filenames or repeat(None), strict=False):
        own = {"model_id": model_id, "class_id": class_id, "sha256": digest(data), "data": data, "scaled": small}
        db.execute(insert(Shot).values(own | {"filename": file_name(name), "created_at": moment}))


def add_guard(db: Session, model_id: ModelId, class_id: int, images: Sequence[bytes]) -> None:
    db.add_all(GuardImage(model_id=model_id, class_id=class_id, sha256=digest(data), data=data) for data in images)
    db.flush()


def shots_of(db: Session, model_id: ModelId, class_ids: Iterable[int]) -> list[StoredImage]:
    return _read_images(db, Shot, model_id, Shot.class_id, list(class_ids))


def wholly_stored(db: Session, model_id: ModelId, class_ids: Iterable[int], limit: int) -> list[int]:
    """Those of the classes whose shots are all stored: not classes of a base session. None beyond `limit` shots."""
    counted = select(Shot.class_id, func.count()).where(Shot.model_id == model_id).group_by(Shot.class_id)
    stored = {row[0]: row[1] for row in db.execute(counted)}
    shots = {row.id: row.shots for row in db.execute(select(ClassRow.id, ClassRow.shots).where(_is_living(model_id)))}
    whole = [c for c in class_ids if c in stored and stored[c] == shots.get(c)]
    return whole if sum(stored[c] for c in whole) <= limit else []


def shot_keys(db: Session, model_id: ModelId, class_id: int) -> list[int]:
    """The ids of its stored shots, oldest first."""
    own = select(Shot.id).where(Shot.model_id == model_id, Shot.class_id == class_id)
    return list(db.scalars(own.order_by(Shot.id)))


def guard_keys(db: Session, model_id: ModelId, class_id: int) -> list[int]:
    """The ids of its guard images, oldest first."""
    own = select(GuardImage.id).where(GuardImage.model_id == model_id, GuardImage.class_id == class_id)
    return list(db.scalars(own.order_by(GuardImage.id)))


def shot(db: Session, key: int) -> StoredImage:
    """A stored shot as it is decoded again: its smaller copy, if it has one."""
    row = db.execute(
        select(Shot.class_id, Shot.sha256, func.coalesce(Shot.scaled, Shot.data)).where(Shot.id == key)
    ).one_or_none()
    if row is None:
        raise NotThere("a shot of the class was deleted meanwhile; try again")
    return StoredImage(*row)


def count_stored_shots(db: Session, model_id: ModelId, class_id: int) -> int:
    own = select(func.count()).where(Shot.model_id == model_id, Shot.class_id == class_id)
    return db.execute(own).scalar_one()


def guard_set(db: Session, model_id: ModelId, class_ids: Iterable[int], limit: int) -> list[StoredImage]:
    """At most `limit` images to measure old classes on, the same ones each time.

    Guard images of a class that has them, otherwise its shots. The first image of every class comes before the second
    of any: a limit drops images, not classes.
    """
    chosen: list[tuple[int, str, _ImageTable, int]] = []
    wanted = set(class_ids)
    for table in (GuardImage, Shot):
        rows = db.execute(
            select(table.class_id, table.sha256, table.id).where(table.model_id == model_id).order_by(table.id)
        ).all()
        guarded = {class_id for class_id, *_ in chosen}
        chosen += [(c, sha, table, key) for c, sha, key in rows if c in wanted and c not in guarded]
    depth: dict[int, int] = {}
    ranked = []
    for class_id, sha, table, key in sorted(chosen, key=lambda entry: entry[1]):
        depth[class_id] = depth.get(class_id, 0) + 1
        ranked.append((depth[class_id], sha, table, key))
    ranked.sort(key=lambda entry: entry[:2])
    images: list[StoredImage] = []
    for table in (GuardImage, Shot):
        keys = [key for *_, of, key in ranked[:limit] if of is table]
        images += _read_images(db, table, model_id, table.id, keys)
    return images


def _read_images(
    db: Session, table: _ImageTable, model_id: ModelId, column: InstrumentedAttribute[int], wanted: list[int]
) -> list[StoredImage]:
    """The images whose `column` has one of the wanted values, oldest first."""
    small = table.scaled if table is Shot else null()
    own_id = table.id if table is Shot else -table.id
    statement = (
        select(table.class_id, table.sha256, table.data, small, own_id)
        .where(table.model_id == model_id)
        .order_by(table.id)
    )
    return [StoredImage(*row) for some in batched(wanted) for row in db.execute(statement.where(column.in_(some)))]
