"""Base sessions that wait for a worker: one of a model at a time, with what they will learn from."""

from typing import IO, Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from store import zip_parts
from store.database import now
from store.errors import Conflict
from store.models import ModelId, SessionRow
from store.sessions import FINISHED

BASE = "base"


def enqueue(
    db: Session,
    model_id: ModelId,
    task: dict[str, Any],
    zip_file: IO[bytes] | None,
    *,
    queue: str,
    request_id: str | None,
) -> SessionRow:
    """A session that is ready at once, with its zip. Raises Conflict if another one of the model is not over."""
    require_none(db, model_id)
    moment = now(db)
    row = SessionRow(
        model_id=model_id,
        status="queued",
        kind=BASE,
        task=task,
        queue=queue,
        ready_at=moment,
        request_id=request_id,
        created_at=moment,
    )
    try:
        with db.begin_nested():
            db.add(row)
    except IntegrityError as error:  # another replica queued one at the same moment
        raise Conflict("another base session of this model was started at the same moment; wait for it") from error
    if zip_file is not None:
        row.task = {**task, "parts": zip_parts.add(db, row.id, zip_file)}
    db.flush()
    return row


def require_none(db: Session, model_id: ModelId) -> None:
    """Raises Conflict while a base session of the model waits or runs."""
    own = (SessionRow.model_id == model_id, SessionRow.kind == BASE, SessionRow.status.not_in(FINISHED))
    found = db.scalars(select(SessionRow).where(*own).limit(1)).one_or_none()
    if found is not None:
        raise Conflict(
            f"the model has a base session already: session {found.id} is {found.status}; "
            f"wait until it is over, or cancel it with POST …/sessions/{found.id}/cancel"
        )
