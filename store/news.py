"""The news of a model, read from its rows: what has changed since a moment.

Nothing is written for it. A moment is a few numbers, which fit into the id of an event: whoever comes back with the id
of the last event misses nothing that still matters.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store import catalogue, samples
from store.models import Model, ModelId, SessionEvent, SessionRow, Version

MOST = 200  # events of a kind at a time; of more, the newest
RECENT = 5  # sessions whose events a newcomer has missed


@dataclass(frozen=True)
class Moment:
    version: int = 0  # the newest
    head: int = 0
    renames: int = 0
    session: int = 0  # the newest
    event: int = 0  # the newest of a session of this model
    sample: int = 0  # the newest in the inbox
    samples: int = 0  # how many are there

    def __str__(self) -> str:
        return "-".join(str(number) for number in astuple(self))

    @classmethod
    def parse(cls, text: str) -> "Moment | None":
        parts = text.split("-")
        fields = cls.__dataclass_fields__
        if len(parts) != len(fields) or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            return None
        return cls(*map(int, parts))


class NewsItem(NamedTuple):
    event: str  # taught, deleted, version, head, renamed, session, inbox
    data: dict[str, Any]


class News(NamedTuple):
    moment: Moment
    items: list[NewsItem]
    over: bool = False  # the model was deleted


def now_of(db: Session, model_id: ModelId) -> News:
    """Where the news of a model begin for somebody who has seen nothing."""
    model = catalogue.find_by_id(db, model_id)
    if model is None:
        return News(Moment(), [], over=True)
    recent = select(SessionRow.id).where(SessionRow.model_id == model_id).order_by(SessionRow.id.desc()).limit(RECENT)
    newest = select(func.max(SessionEvent.id)).where(SessionEvent.session_id.in_(recent.scalar_subquery()))
    return News(replace(_now(db, model), event=db.execute(newest).scalar_one() or 0), [])


def since(db: Session, model_id: ModelId, before: Moment) -> News:
    """What has changed since `before`, oldest first within each kind."""
    model = catalogue.find_by_id(db, model_id)
    if model is None:
        return News(before, [], over=True)
    moment = _now(db, model)
    steps = _session_steps(db, model_id, before.event)
    items = [
        *_version_items(db, model_id, before.version),
        *([NewsItem("head", {"version": moment.head})] if moment.head != before.head else []),
        *([NewsItem("renamed", {})] if moment.renames != before.renames else []),
        *_queued_items(db, model_id, before.session),
        *(NewsItem("session", _about(step, row)) for step, row in steps),
        *([NewsItem("inbox", {"total": moment.samples})] if _inbox(moment) != _inbox(before) else []),
    ]
    return News(replace(moment, event=steps[-1][0].id if steps else before.event), items)


def _now(db: Session, model: Model) -> Moment:
    newest = select(func.max(SessionRow.id)).where(SessionRow.model_id == model.id)
    session, sample = db.execute(newest).scalar_one() or 0, samples.newest(db, model.id)
    inbox = {"sample": sample, "samples": samples.count(db, model.id)}
    return Moment(model.last_version, model.head, model.renames, session, **inbox)


def _inbox(moment: Moment) -> tuple[int, int]:
    return moment.sample, moment.samples


def _version_items(db: Session, model_id: ModelId, before: int) -> Iterator[NewsItem]:
    own = (Version.model_id == model_id, Version.number > before)
    rows = db.scalars(select(Version).where(*own).order_by(Version.number.desc()).limit(MOST)).all()
    for row in reversed(rows):
        about = {"version": row.number, "kind": row.kind, "verdict": row.verdict, "session": row.session_id}
        yield NewsItem("version", about)
        if row.kind == "provisional":
            yield NewsItem("taught", {"class_id": row.details.get("class"), "version": row.number})
        gone = row.details.get("merged") if row.kind == "provisional" else row.details.get("class")
        if gone is not None and row.kind in ("provisional", "delete"):
            yield NewsItem("deleted", {"class_id": gone, "version": row.number})


def _queued_items(db: Session, model_id: ModelId, before: int) -> list[NewsItem]:
    own = (SessionRow.model_id == model_id, SessionRow.id > before)
    rows = db.scalars(select(SessionRow.id).where(*own).order_by(SessionRow.id.desc()).limit(MOST)).all()
    return [NewsItem("session", {"session": own_id, "event": "queued"}) for own_id in reversed(rows)]


def _session_steps(db: Session, model_id: ModelId, before: int) -> list[tuple[SessionEvent, SessionRow]]:
    rows = db.execute(
        select(SessionEvent, SessionRow)
        .join(SessionRow, SessionRow.id == SessionEvent.session_id)
        .where(SessionRow.model_id == model_id, SessionEvent.id > before)
        .order_by(SessionEvent.id.desc())
        .limit(MOST)
    ).all()
    return [(step, row) for step, row in reversed(rows)]


def _about(step: SessionEvent, row: SessionRow) -> dict[str, Any]:
    return {**step.data, "session": row.id, "event": step.event, "status": row.status, "at": step.at.isoformat()}
