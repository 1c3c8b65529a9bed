"""Sessions: jobs in a table, claimed with a lease and fenced by attempt.

The row is the truth: a worker that never receives the message about a session still finds it here. A worker that was
paused for longer than its lease finds its attempt outdated and can write nothing.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from store import zip_parts
from store.database import now
from store.errors import Conflict, LeaseLost, NotThere
from store.models import Model, ModelId, SessionEvent, SessionId, SessionRow

ANYWHERE = "cpu"  # the queue that every worker reads
INCREMENTAL = "incremental"
KEPT_EVENTS = 100  # the newest sessions of a model whose events are kept
FINISHED = ("succeeded", "failed", "cancelled")
LONGEST_LEASE = timedelta(minutes=10)  # or ten times a worker's own, if that is longer


def enqueue(
    db: Session,
    model: Model,
    *,
    delay: float,
    patience: float,
    queue: str = ANYWHERE,
    request_id: str | None = None,
    traceparent: str | None = None,
) -> SessionRow:
    """The model's queued incremental session, created if there is none; the caller holds the model's lock.

    Each call postpones the start by `delay` seconds, at most until `patience` seconds after the first call.
    """
    moment = now(db)
    ready = moment + timedelta(seconds=delay)
    own = (SessionRow.model_id == model.id, SessionRow.kind == INCREMENTAL)
    waiting = select(SessionRow).where(*own, SessionRow.status == "queued")
    queued = db.scalars(waiting.with_for_update()).one_or_none()
    if queued is None:
        queued = SessionRow(
            model_id=model.id,
            status="queued",
            queue=queue,
            ready_at=ready,
            request_id=request_id,
            traceparent=traceparent,
            created_at=moment,
        )
        db.add(queued)
    else:
        latest = queued.created_at + timedelta(seconds=patience)
        queued.ready_at = max(queued.ready_at, min(ready, latest))
    db.flush()
    return queued


def claim(
    db: Session,
    owner: str,
    *,
    lease: float,
    attempts: int,
    queues: Sequence[str] = (ANYWHERE,),
    session_id: SessionId | None = None,
) -> SessionRow | None:
    """Take the oldest session that may run: queued and ready, or running without a living worker."""
    moment = now(db)
    statement = select(SessionRow).where(or_(_ready(moment), _abandoned(moment, lease)), SessionRow.queue.in_(queues))
    statement = statement.order_by(SessionRow.id).limit(1)
    if session_id is not None:
        statement = statement.where(SessionRow.id == session_id)
    row = db.scalars(statement.with_for_update(skip_locked=True)).one_or_none()
    if row is None:
        return None
    if row.status == "running" and row.owner is not None:  # its worker disappeared without releasing it
        row.failures += 1
        row.error = f"worker {row.owner} was lost in attempt {row.attempt}"
        if row.failures >= attempts:
            _end(db, row, "failed", {"error": row.error})
            return None
    try:
        with db.begin_nested():
            row.status, row.owner = "running", owner
            row.attempt += 1
            row.lease_until = moment + timedelta(seconds=lease)
            row.started_at = row.started_at or moment
    except IntegrityError:  # another worker claimed a session of this model at the same moment
        return None
    _add_event(db, row.id, "running", {"attempt": row.attempt})
    return row


def _ready(moment: datetime) -> ColumnElement[bool]:
    """Queued, with its delay over, while no other session of its model runs.

    A session that was created in the future shows that the clock was set back since, perhaps by days. It is due at
    once, because every session is ready soon after it was created.
    """
    others = select(SessionRow.model_id).where(SessionRow.status == "running")
    due = or_(SessionRow.ready_at <= moment, SessionRow.created_at > moment)
    return and_(SessionRow.status == "queued", due, SessionRow.model_id.not_in(others))


def _abandoned(moment: datetime, lease: float) -> ColumnElement[bool]:
    """Running, with a lease that has ended, or that ends later than any worker would ask for.

    The latter was written before the clock was set back. A living worker renews it within seconds by the new clock; if
    another worker is faster, it repeats the work, and the attempt number keeps the first one from writing.
    """
    latest = moment + max(LONGEST_LEASE, timedelta(seconds=10 * lease))
    over = or_(SessionRow.lease_until < moment, SessionRow.lease_until > latest)
    return and_(SessionRow.status == "running", over)


def renew(db: Session, session_id: SessionId, attempt: int, lease: float) -> bool:
    """Extend the lease; returns whether the session should be cancelled."""
    row = fenced(db, session_id, attempt)
    row.lease_until = now(db) + timedelta(seconds=lease)
    db.flush()
    return row.cancel_requested


def release(db: Session, session_id: SessionId, attempt: int, *, delay: float = 0) -> None:
    """Give the session to the next worker without counting a failure: at once, or after `delay` seconds."""
    row = fenced(db, session_id, attempt)
    _give_back(db, row, delay=delay)
    _add_event(db, session_id, "released", {"attempt": attempt})


def fenced(db: Session, session_id: SessionId, attempt: int) -> SessionRow:
    """The session, locked until the transaction ends, if this attempt still holds it. Every write goes through here.

    Raises LeaseLost otherwise, also for an attempt that released the session: renewing its lease at the same moment
    would keep other workers from it.
    """
    statement = select(SessionRow).where(SessionRow.id == session_id).with_for_update()
    row = db.scalars(statement.execution_options(populate_existing=True)).one_or_none()
    if row is None or row.status != "running" or row.owner is None or row.attempt != attempt:
        raise LeaseLost(f"attempt {attempt} no longer holds session {session_id}; its result is not written")
    return row


def record_progress(db: Session, session_id: SessionId, attempt: int, progress: dict[str, Any]) -> bool:
    """Store the progress; returns whether the session should be cancelled."""
    row = fenced(db, session_id, attempt)
    row.progress = progress
    _add_event(db, session_id, "progress", progress)
    return row.cancel_requested


def finish(
    db: Session,
    session_id: SessionId,
    attempt: int,
    status: str,
    *,
    verdict: str | None = None,
    reason: str | None = None,
    version: int | None = None,
) -> None:
    outcome = {"verdict": verdict, "reason": reason, "version": version}
    given = {name: value for name, value in outcome.items() if value is not None}
    _end(db, fenced(db, session_id, attempt), status, given)


def record_failure(db: Session, session_id: SessionId, attempt: int, error: str, *, attempts: int) -> bool:
    """Count a failure; returns whether it was the last attempt that is allowed."""
    row = fenced(db, session_id, attempt)
    row.failures += 1
    row.error = error
    if row.failures >= attempts:
        _end(db, row, "failed", {"error": error})
        return True
    _give_back(db, row)
    _add_event(db, row.id, "retry", {"attempt": attempt, "error": error})
    return False


def _give_back(db: Session, row: SessionRow, *, delay: float = 0) -> None:
    """Still running, so that a newer session of the model does not overtake it, but free to claim after the delay."""
    row.owner = None
    row.lease_until = now(db) + timedelta(seconds=delay or -1)


def cancel(db: Session, model_id: ModelId, session_id: int) -> SessionRow:
    """A queued session ends at once; a running one is asked to stop, and does so between two steps."""
    get(db, model_id, session_id)
    statement = select(SessionRow).where(SessionRow.id == session_id).with_for_update()
    row = db.scalars(statement.execution_options(populate_existing=True)).one()
    if row.status in FINISHED:
        raise Conflict(f"session {session_id} has {row.status} already")
    row.cancel_requested = True
    if row.status == "queued":
        _end(db, row, "cancelled", {})
    db.flush()
    return row


def _end(db: Session, row: SessionRow, status: str, outcome: dict[str, Any]) -> None:
    row.status = status
    row.finished_at = now(db)
    row.lease_until = None
    row.error = None  # of an earlier attempt
    for name, value in outcome.items():
        setattr(row, name, value)
    db.flush()
    if row.kind != INCREMENTAL:
        zip_parts.erase(db, row.id)
    _add_event(db, row.id, status, outcome)
    _forget_old_events(db, row.model_id)


def get(db: Session, model_id: ModelId, session_id: int) -> SessionRow:
    row = db.get(SessionRow, session_id) if 0 < session_id < 2**63 else None
    if row is None or row.model_id != model_id:
        raise NotThere(f"there is no session {session_id}; GET /sessions lists them")
    return row


def page(db: Session, model_id: ModelId, *, before: int | None, limit: int) -> list[SessionRow]:
    """Newest first."""
    statement = select(SessionRow).where(SessionRow.model_id == model_id).order_by(SessionRow.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(SessionRow.id < before)
    return list(db.scalars(statement))


def _add_event(db: Session, session_id: SessionId, event: str, data: dict[str, Any]) -> None:
    db.add(SessionEvent(session_id=session_id, event=event, data=data, at=now(db)))
    db.flush()


def events(db: Session, session_id: SessionId, *, after: int | None = None) -> list[SessionEvent]:
    """The events after the one with this id; all of them without an id."""
    found = db.scalars(
        select(SessionEvent)
        .where(SessionEvent.session_id == session_id, SessionEvent.id > (after or 0))
        .order_by(SessionEvent.id)
    ).all()
    if after is not None:
        return list(found)
    # The first event is made from the session's own row: teaching must be quick, so it writes no event.
    row = db.get_one(SessionRow, session_id)
    return [SessionEvent(id=0, session_id=session_id, event="queued", data={}, at=row.created_at), *found]


def _forget_old_events(db: Session, model_id: ModelId) -> None:
    """Sessions keep their outcome; the events of old sessions are deleted.

    A few at a time, whenever a session ends, so that the cost does not grow with the number of sessions.
    """
    newest_first = select(SessionRow.id).where(SessionRow.model_id == model_id).order_by(SessionRow.id.desc())
    old = newest_first.offset(KEPT_EVENTS).limit(10)
    db.execute(delete(SessionEvent).where(SessionEvent.session_id.in_(old)))


def is_over(db: Session, session_id: SessionId) -> bool:
    status = db.execute(select(SessionRow.status).where(SessionRow.id == session_id)).scalar_one_or_none()
    return status is None or status in FINISHED
