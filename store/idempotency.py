"""Answers stored under the caller's own key, written in the transaction that did what was requested.

So there is no moment at which the work is done and its answer is not stored, or the other way round.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from store.database import now
from store.errors import KeyReused
from store.models import IdempotencyKey, ModelId, SessionId

REMEMBERED = timedelta(days=1)


def recall(db: Session, model_id: ModelId, key: str, fingerprint: str) -> IdempotencyKey | None:
    """The answer that a request with this key got before."""
    row = db.get(IdempotencyKey, (model_id, key))
    if row is None or row.created_at < now(db) - REMEMBERED:
        return None
    if row.fingerprint != fingerprint:
        raise KeyReused(f"the Idempotency-Key '{key}' was used for another request; use a new key for this one")
    return row


def remember(
    db: Session, model_id: ModelId, key: str, fingerprint: str, *, answer: dict[str, Any], session_id: SessionId | None
) -> None:
    """Store the answer; the caller holds the model's lock and `recall` found nothing."""
    moment = now(db)
    db.execute(delete(IdempotencyKey).where(IdempotencyKey.created_at < moment - REMEMBERED))
    db.add(
        IdempotencyKey(
            model_id=model_id,
            key=key,
            fingerprint=fingerprint,
            status=202,
            answer=answer,
            session_id=session_id,
            created_at=moment,
        )
    )
    db.flush()
