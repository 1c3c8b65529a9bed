"""The answer to a caller who teaches, as plain data: it is stored with the caller's idempotency key."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from engine.decoder import Upload
from learners.taught_class import TaughtClass
from store import idempotency
from store.images import Stored
from store.measurements import Measured, summary
from store.models import ClassRow, ModelId, SessionId, SessionRow

FAR_FROM_SIBLINGS = "this image lies far from the others of its class; is it the right one?"
_SESSION_FIELDS = ("id", "kind", "status", "verdict", "reason", "error", "version", "attempt", "progress")
_SESSION_TIMES = ("created_at", "started_at", "finished_at")


@dataclass(frozen=True)
class Idempotency:
    """A caller's own key for a request, and a digest of the request."""

    key: str
    fingerprint: str


@dataclass(frozen=True)
class Outcome:
    """The answer, and the session to wait for."""

    answer: dict[str, Any]  # class, session, version, outliers
    session_id: SessionId | None


def recall(db: Session, model_id: ModelId, key: Idempotency | None) -> Outcome | None:
    known = key and idempotency.recall(db, model_id, key.key, key.fingerprint)
    return Outcome(known.answer, known.session_id) if known else None


def remember(db: Session, model_id: ModelId, key: Idempotency | None, outcome: Outcome) -> None:
    if key:
        answer, session_id = outcome.answer, outcome.session_id
        idempotency.remember(db, model_id, key.key, key.fingerprint, answer=answer, session_id=session_id)


def outliers_of(new: TaughtClass, shots: Sequence[Upload]) -> list[dict[str, Any]]:
    """Which of the shots lie far from their siblings; they are the last of those that were learned from."""
    before = len(new.held_out) - len(shots)
    return [
        {
            "index": shots[place - before].index,
            "filename": shots[place - before].filename,
            "distance": round(float(new.held_out[place]), 6),
            "message": FAR_FROM_SIBLINGS,
        }
        for place in new.outliers
        if place >= before
    ]


def answer_of(
    row: ClassRow,
    session: SessionRow,
    version: int,
    outliers: list[dict[str, Any]],
    stored: Stored,
    measured: Sequence[Measured],
) -> dict[str, Any]:
    taught = {name: getattr(row, name) for name in ("id", "name", "status", "shots", "since")}
    return {
        "class": {
            **taught,
            "served": True,
            "created_at": row.created_at.isoformat(),
            "accuracy": summary([one for one in measured if one.class_id == row.id]),
            "cover": stored.cover,
            "guarded": row.shots > stored.shots,
        },
        "session": session_answer(session),
        "version": version,
        "outliers": outliers,
    }


def session_answer(session: SessionRow) -> dict[str, Any]:
    fields = {name: getattr(session, name) for name in (*_SESSION_FIELDS, "cancel_requested")}
    return {**fields, **{name: _moment(getattr(session, name)) for name in _SESSION_TIMES}}


def _moment(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
