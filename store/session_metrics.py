"""What monitoring wants to know about the sessions, read at one moment: states, waiting times, leases, durations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Float, case, cast, extract, func, select
from sqlalchemy.orm import Session

from store.database import now
from store.models import SessionId, SessionRow
from store.sessions import FINISHED


@dataclass(frozen=True)
class SessionDurations:
    """How long the sessions with one outcome took."""

    status: str
    buckets: tuple[int, ...]  # for each bound: the sessions that took at most as long
    number: int
    seconds: float  # of all of them together


@dataclass(frozen=True)
class SessionMetrics:
    """The sessions as the database has them at `moment`, which is a time by its own clock."""

    moment: datetime
    counts: dict[str, int]  # by status
    queued_since: dict[SessionId, datetime]  # when each queued session was created; a model has at most one
    leases: dict[SessionId, datetime]  # of running sessions; after its end no worker holds the session
    durations: list[SessionDurations]


@dataclass(frozen=True)
class Activity:
    queued: int  # sessions that wait
    leased: int  # sessions that a worker holds


def activity(db: Session) -> Activity:
    """What is going on now, in all models."""
    queued = select(func.count()).where(SessionRow.status == "queued")
    held = (SessionRow.status == "running", SessionRow.owner.is_not(None), SessionRow.lease_until > now(db))
    return Activity(db.execute(queued).scalar_one(), db.execute(select(func.count()).where(*held)).scalar_one())


def measure(db: Session, bounds: Sequence[float]) -> SessionMetrics:
    """`bounds` are the upper limits of the durations' buckets, in seconds."""
    return SessionMetrics(now(db), counts(db), _queued_since(db), _leases(db), _durations(db, bounds))


def counts(db: Session) -> dict[str, int]:
    """How many sessions there are, by status."""
    rows = db.execute(select(SessionRow.status, func.count().label("number")).group_by(SessionRow.status))
    return {row.status: row.number for row in rows}


def _queued_since(db: Session) -> dict[SessionId, datetime]:
    rows = db.execute(select(SessionRow.id, SessionRow.created_at).where(SessionRow.status == "queued"))
    return {row.id: row.created_at for row in rows}


def _leases(db: Session) -> dict[SessionId, datetime]:
    rows = db.execute(select(SessionRow.id, SessionRow.lease_until).where(SessionRow.status == "running"))
    return {row.id: row.lease_until for row in rows if row.lease_until is not None}


def _durations(db: Session, bounds: Sequence[float]) -> list[SessionDurations]:
    took = _seconds(db)
    seconds = case((took < 0, 0.0), else_=took)  # the clock was set back meanwhile, and a sum must not fall
    within = [func.sum(case((seconds <= bound, 1), else_=0)) for bound in bounds]
    rows = db.execute(
        select(SessionRow.status, func.count(), func.sum(seconds), *within)
        .where(SessionRow.status.in_(FINISHED), SessionRow.started_at.is_not(None))
        .where(SessionRow.finished_at.is_not(None))
        .group_by(SessionRow.status)
    )
    return [SessionDurations(status, tuple(buckets), number, float(total)) for status, number, total, *buckets in rows]


def _seconds(db: Session) -> ColumnElement[float]:
    """How long a session took, which every database computes in its own way."""
    if db.get_bind().dialect.name == "sqlite":
        days = func.julianday(SessionRow.finished_at) - func.julianday(SessionRow.started_at)
        return cast(days * 86400.0, Float)
    return cast(extract("epoch", SessionRow.finished_at - SessionRow.started_at), Float)
