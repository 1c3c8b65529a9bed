"""Webhooks: addresses that are told of what happens to a model, each with a secret that signs what it is told.

The secret is stored as it is, because every delivery is signed with it; only the answer to its making shows it.
"""

import base64
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from store.database import now
from store.errors import LimitReached, NotThere
from store.models import Delivery, ModelId, Webhook

EVENTS = ("version.published", "session.rejected", "inbox.full")
MOST = 20  # webhooks of one model
SECRET_BYTES = 32  # Standard Webhooks asks for 24 to 64
DISABLED_AFTER = timedelta(days=3)  # of nothing but failures


def create(db: Session, model_id: ModelId, url: str, events: Collection[str]) -> Webhook:
    """Raises LimitReached. `events` are some of EVENTS."""
    number = db.execute(select(func.count()).where(Webhook.model_id == model_id)).scalar_one()
    if number >= MOST:
        raise LimitReached(f"the model has {number} webhooks, and {MOST} are the most; delete one first")
    row = Webhook(
        id=f"wh_{secrets.token_hex(8)}",
        model_id=model_id,
        url=url,
        events=" ".join(event for event in EVENTS if event in events),
        secret=f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}",
        created_at=now(db),
    )
    db.add(row)
    db.flush()
    return row


def everything(db: Session, model_id: ModelId) -> list[Webhook]:
    """Oldest first."""
    own = select(Webhook).where(Webhook.model_id == model_id)
    return list(db.scalars(own.order_by(Webhook.created_at, Webhook.id)))


def waiting(db: Session, model_id: ModelId) -> dict[str, int]:
    """How many deliveries of each webhook wait."""
    own = select(Delivery.webhook_id, func.count().label("number")).join(Webhook).where(Webhook.model_id == model_id)
    return {row.webhook_id: row.number for row in db.execute(own.group_by(Delivery.webhook_id))}


def get(db: Session, model_id: ModelId, own_id: str) -> Webhook:
    row = db.get(Webhook, own_id)
    if row is None or row.model_id != model_id:
        raise NotThere(f"there is no webhook '{own_id}'; GET /webhooks lists them")
    return row


def delete(db: Session, model_id: ModelId, own_id: str) -> None:
    """With what waits for it."""
    db.delete(get(db, model_id, own_id))
    db.flush()


def locked(db: Session, own_id: str) -> Webhook | None:
    """The row, locked against other results and claims until the transaction ends; None if it was deleted."""
    statement = select(Webhook).where(Webhook.id == own_id).with_for_update(key_share=True)
    return db.scalars(statement.execution_options(populate_existing=True)).one_or_none()


def succeeded(db: Session, row: Webhook, result: dict[str, Any], moment: datetime) -> None:
    """An attempt has arrived: the receiver is there, so whatever waits for a retry is due now."""
    row.status, row.reason, row.failing_since, row.last_delivery = "active", None, None, result
    later = (Delivery.webhook_id == row.id, Delivery.due_at > moment)
    db.execute(update(Delivery).where(*later).values(due_at=moment))


def failed(row: Webhook, result: dict[str, Any], moment: datetime, *, gone: bool = False) -> None:
    """An attempt has not arrived. `gone`: the receiver wants no more of them."""
    row.last_delivery = result
    row.failing_since = row.failing_since or moment
    if gone:
        row.status, row.reason = "disabled", "the receiver has answered 410 Gone"
    elif moment - row.failing_since >= DISABLED_AFTER:
        since = row.failing_since.isoformat(timespec="seconds")
        row.status, row.reason = "disabled", f"every delivery since {since} has failed"


def listed(events: str) -> Sequence[str]:
    """As a row has them."""
    return events.split()
