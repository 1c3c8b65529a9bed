"""The outbox: events on their way to webhooks, written in the transaction that made them happen.

So there is no moment at which a version is stored and its event is not, or the other way round. A process that delivers
holds a lease on the webhook, so each receiver gets one delivery at a time. A process that dies leaves the row: the
event is delivered again, under the same id.
"""

import json
import random
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, or_, select
from sqlalchemy.orm import Session

from store import webhooks
from store.database import now
from store.models import Delivery, Model, Webhook

# Before each retry, as Standard Webhooks advises: three days in all.
WAITS = (
    *(timedelta(seconds=5), timedelta(minutes=5), timedelta(minutes=30)),
    *(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 24)),
)
JITTER = 0.1  # of a wait: receivers that came back are not asked by everybody at once
LONGEST_WAIT = timedelta(hours=30)
MOST_WAITING = 1_000  # deliveries of one webhook; the oldest go first
KEPT = timedelta(days=7)  # deliveries of a webhook that is disabled
BETWEEN_FULL = timedelta(hours=1)  # two events that an inbox is full
GONE = 410


@dataclass(frozen=True)
class Claimed:
    """A delivery to make, and all that it takes."""

    webhook_id: str
    claim: int
    url: str
    secret: str
    delivery_id: str
    type: str
    body: str
    attempt: int  # from 1
    at: datetime  # by the database's clock, which all processes share


@dataclass(frozen=True)
class Result:
    """What came of an attempt: a status, or an error before there was one."""

    status: int | None
    error: str | None
    milliseconds: float

    @property
    def arrived(self) -> bool:
        return self.error is None


def add(db: Session, model: Model, event: str, data: dict[str, Any]) -> None:
    """Tell the model's webhooks of an event. The caller's transaction is the one in which it happens."""
    own = select(Webhook).where(Webhook.model_id == model.id, Webhook.status == "active").order_by(Webhook.id)
    # Locked against being deleted: in the same order as a deletion locks them, the webhook before its deliveries.
    found = db.scalars(own.with_for_update(read=True, key_share=True))
    wanted = [row for row in found if event in webhooks.listed(row.events)]
    if not wanted:
        return
    moment = now(db)
    body = message(event, moment, {"model": model.name, **data})
    for row in wanted:
        if event == "inbox.full":
            if row.full_at is not None and abs(moment - row.full_at) < BETWEEN_FULL:
                continue
            row.full_at = moment
        _make_room(db, row.id)
        own_id = f"msg_{secrets.token_hex(12)}"
        db.add(Delivery(id=own_id, webhook_id=row.id, type=event, body=body, due_at=moment, created_at=moment))
    db.flush()


def message(event: str, moment: datetime, data: dict[str, Any]) -> str:
    """The body of a delivery."""
    return json.dumps({"type": event, "timestamp": moment.isoformat(), "data": data}, ensure_ascii=False)


def _make_room(db: Session, webhook_id: str) -> None:
    own = Delivery.webhook_id == webhook_id
    beyond = db.execute(select(func.count()).where(own)).scalar_one() - MOST_WAITING + 1
    if beyond > 0:
        oldest = db.scalars(select(Delivery.id).where(own).order_by(Delivery.created_at, Delivery.id).limit(beyond))
        db.execute(delete(Delivery).where(Delivery.id.in_(oldest.all())))


def is_due(db: Session) -> bool:
    """Whether there is something to claim: a look that takes no lock."""
    return db.scalars(_claimable(now(db)).limit(1)).first() is not None


def claim(db: Session, most: int, lease: float) -> list[Claimed]:
    """Take the first delivery that is due of some webhooks, one of each, for `lease` seconds."""
    moment = now(db)
    found = _claimable(moment).order_by(Webhook.lease_until.nulls_first(), Webhook.id).limit(most)
    claimed = []
    for row in db.scalars(found.with_for_update(skip_locked=True, key_share=True)).all():
        row.claims += 1
        row.lease_until = moment + timedelta(seconds=lease)
        first = select(Delivery).where(Delivery.webhook_id == row.id, _due(moment))
        delivery = db.scalars(first.order_by(Delivery.due_at, Delivery.created_at, Delivery.id).limit(1)).first()
        if delivery is not None:
            about = (delivery.id, delivery.type, delivery.body, delivery.attempts + 1)
            claimed.append(Claimed(row.id, row.claims, row.url, row.secret, *about, moment))
    db.flush()
    return claimed


def _claimable(moment: datetime) -> Select[Webhook]:
    due = select(Delivery.id).where(Delivery.webhook_id == Webhook.id, _due(moment)).exists()
    return select(Webhook).where(Webhook.status == "active", _free(moment), due)


def _free(moment: datetime) -> ColumnElement[bool]:
    """Nobody delivers to it. A lease far in the future was written before the clock was set back."""
    over = or_(Webhook.lease_until <= moment, Webhook.lease_until > moment + timedelta(minutes=10))
    return or_(Webhook.lease_until.is_(None), over)


def _due(moment: datetime) -> ColumnElement[bool]:
    """Also a delivery that could only be due so late, or made later than now, if the clock was set back since."""
    set_back = or_(Delivery.created_at > moment, Delivery.due_at > moment + LONGEST_WAIT)
    return or_(Delivery.due_at <= moment, set_back)


def record(db: Session, claimed: Claimed, result: Result) -> None:
    """What came of a delivery; it is over, or due again after a wait that grows."""
    row = webhooks.locked(db, claimed.webhook_id)
    if row is None:
        return
    moment, delivery = now(db), db.get(Delivery, claimed.delivery_id)
    told = {"type": claimed.type, "attempt": claimed.attempt, **_outcome(result, moment)}
    holds = row.claims == claimed.claim  # otherwise another process has the lease, and its failures count
    if holds:
        row.lease_until = moment  # free, behind the others
    if result.arrived:
        webhooks.succeeded(db, row, told, moment)
        if delivery is not None:
            row.delivered += 1
            db.delete(delivery)
    elif holds:
        webhooks.failed(row, told, moment, gone=result.status == GONE)
        if delivery is not None:
            _put_off(db, row, delivery, claimed.attempt, moment)
    db.flush()


def _put_off(db: Session, row: Webhook, delivery: Delivery, attempt: int, moment: datetime) -> None:
    """Until its next attempt; after the last one, for good."""
    if attempt > len(WAITS):
        row.given_up += 1
        db.delete(delivery)
    else:
        delivery.attempts = attempt
        delivery.due_at = moment + WAITS[attempt - 1] * random.uniform(1, 1 + JITTER)


def record_test(db: Session, webhook_id: str, result: Result) -> dict[str, Any]:
    """What came of a test: one that has arrived makes a disabled webhook active again, and what waits for it due."""
    row, moment = webhooks.locked(db, webhook_id), now(db)
    told = {"type": "webhook.test", "attempt": 1, **_outcome(result, moment)}
    if row is not None and result.arrived:
        webhooks.succeeded(db, row, told, moment)
    elif row is not None:
        row.last_delivery = told
    db.flush()
    return told


def prune(db: Session) -> int:
    """Drop what nobody will send: of webhooks that have been disabled for long."""
    old = delete(Delivery).where(Delivery.created_at < now(db) - KEPT)
    return len(db.execute(old.returning(Delivery.id)).all())


def _outcome(result: Result, moment: datetime) -> dict[str, Any]:
    return {
        "at": moment.isoformat(),
        "arrived": result.arrived,
        "status": result.status,
        "error": result.error,
        "milliseconds": round(result.milliseconds, 1),
    }
