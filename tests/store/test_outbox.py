"""The outbox: an event exists if and only if what it tells of does, and one process at a time delivers it."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store import catalogue, outbox, samples, versions, webhooks
from store.database import Database, now
from store.errors import LimitReached, NotThere
from store.models import Delivery, Model, Webhook
from store.outbox import Claimed, Result
from store.samples import Bounds, NewSample
from store.versions import NewVersion

ARRIVED, AWAY = Result(204, None, 12.0), Result(None, "nobody answers", 15_000.0)
LEASE = 60.0


def publish(db: Session, model: Model, **more: Any) -> None:
    parent = versions.get(db, model.id, model.head)
    about = {"classes": 2, "temperature": 1.0, "threshold": None, **more}
    versions.add(db, model, NewVersion("incremental", parent, **about))


def hook(db: Session, model: Model, *events: str) -> Webhook:
    return webhooks.create(db, model.id, "https://example.org/hook", events or webhooks.EVENTS)


def waiting(db: Session) -> list[Delivery]:
    return list(db.scalars(select(Delivery).order_by(Delivery.created_at, Delivery.id)))


def claim(db: Session) -> Claimed:
    (claimed,) = outbox.claim(db, 10, LEASE)
    return claimed


def later(db: Session, **by: float) -> None:
    """As if this much time had passed."""
    gone = timedelta(**by)
    for row in db.scalars(select(Webhook)):
        row.lease_until = row.lease_until and row.lease_until - gone
        row.failing_since = row.failing_since and row.failing_since - gone
        row.full_at = row.full_at and row.full_at - gone
    for delivery in db.scalars(select(Delivery)):
        delivery.due_at -= gone
        delivery.created_at -= gone
    db.flush()


# Events


def test_a_version_and_its_event_are_stored_together_or_not_at_all(database: Database) -> None:
    """A transaction that fails after the version leaves neither."""
    with database.write() as db:
        model = catalogue.create(db, "birds", "resnet18", 1.0)
        hook(db, model)

    with suppress(ZeroDivisionError), database.write() as db:
        publish(db, catalogue.get(db, "birds"))
        raise ZeroDivisionError
    with database.read() as db:
        neither = (catalogue.get(db, "birds").head, waiting(db))
    with database.write() as db:
        publish(db, catalogue.get(db, "birds"))

    assert neither == (0, [])
    with database.read() as db:
        assert (catalogue.get(db, "birds").head, len(waiting(db))) == (1, 1)


def test_an_event_says_what_happened(db: Session, model: Model) -> None:
    """Small: names and numbers, and nothing that was taught."""
    hook(db, model)

    publish(db, model, verdict="promoted")

    body = json.loads(waiting(db)[0].body)
    assert body.keys() == {"type", "timestamp", "data"}
    assert body["type"] == "version.published"
    about = {"version": 1, "kind": "incremental", "verdict": "promoted", "session": None, "classes": 2}
    assert body["data"] == {"model": "birds", **about}


def test_a_rejected_version_is_an_event_of_its_session(db: Session, model: Model) -> None:
    """With the reason; it is no new version for those who serve."""
    hook(db, model)

    publish(db, model, verdict="rejected", serve=False, details={"reason": "it is worse"})

    (delivery,) = waiting(db)
    assert delivery.type == "session.rejected"
    assert json.loads(delivery.body)["data"]["reason"] == "it is worse"


def test_a_webhook_is_told_of_what_it_asked_for(db: Session, model: Model) -> None:
    """Not of other events, nor of other models; a disabled one of nothing."""
    wants, other, disabled = hook(db, model, "version.published"), hook(db, model, "inbox.full"), hook(db, model)
    disabled.status = "disabled"
    foreign = hook(db, catalogue.create(db, "cars", "resnet18", 1.0))

    publish(db, model)

    told = [one.webhook_id for one in waiting(db)]
    assert told == [wants.id]
    assert not {other.id, disabled.id, foreign.id} & set(told)


def fill(db: Session, model: Model, own_id: int) -> None:
    new = NewSample(own_id, model.id, 0, 0, True, 0.5, 0.25, {"top": []}, b"feature", b"image")
    samples.add(db, [new])
    samples.enforce(db, model.id, Bounds(images=2, bytes=10**6, days=30))


def test_a_full_inbox_is_told_once_an_hour(db: Session, model: Model) -> None:
    """When images leave it unseen, however many do."""
    hook(db, model)
    told = []
    for own_id in range(1, 7):
        if own_id == 6:
            later(db, hours=1)
        fill(db, model, own_id)
        told.append(len(waiting(db)))

    assert told == [0, 0, 1, 1, 1, 2]
    assert json.loads(waiting(db)[0].body)["data"] == {"model": "birds", "images": 3, "bytes": 15}


def test_an_old_sample_is_no_full_inbox(db: Session, model: Model) -> None:
    """Age is no reason to hurry."""
    hook(db, model)
    fill(db, model, 1)

    samples.enforce(db, model.id, Bounds(images=100, bytes=10**6, days=0.0))

    assert (samples.count(db, model.id), waiting(db)) == (0, [])


def test_the_outbox_is_bounded(db: Session, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are kept: they say what is true now."""
    monkeypatch.setattr(outbox, "MOST_WAITING", 3)
    hook(db, model)

    for _ in range(5):
        publish(db, model)
        later(db, seconds=1)

    assert [json.loads(one.body)["data"]["version"] for one in waiting(db)] == [3, 4, 5]


# Claims


def test_each_webhook_has_one_delivery_at_a_time(db: Session, model: Model) -> None:
    """The oldest first; the next one when its result is there."""
    one, other = hook(db, model), hook(db, model)
    publish(db, model)
    publish(db, model)

    first = outbox.claim(db, 10, LEASE)
    meanwhile = (outbox.is_due(db), outbox.claim(db, 10, LEASE))
    outbox.record(db, first[0], ARRIVED)
    following = claim(db)

    assert {own.webhook_id for own in first} == {one.id, other.id}
    assert {json.loads(own.body)["data"]["version"] for own in first} == {1}
    assert meanwhile == (False, [])
    assert (following.webhook_id, json.loads(following.body)["data"]["version"]) == (first[0].webhook_id, 2)


def test_what_a_lost_process_had_claimed_is_delivered_again_under_the_same_id(db: Session, model: Model) -> None:
    """When its lease is over; nothing was counted against it."""
    hook(db, model)
    publish(db, model)

    lost = claim(db)
    later(db, seconds=LEASE + 1)
    again = claim(db)

    assert (again.delivery_id, again.body, again.attempt) == (lost.delivery_id, lost.body, 1)
    assert again.claim == lost.claim + 1


def test_a_result_that_comes_too_late_counts_only_if_it_arrived(db: Session, model: Model) -> None:
    """The process that has the lease now writes the failure; a success is one whoever writes it."""
    row = hook(db, model)
    publish(db, model)
    lost = claim(db)
    later(db, seconds=LEASE + 1)
    claim(db)

    outbox.record(db, lost, AWAY)
    after_failure = (waiting(db)[0].attempts, row.failing_since, outbox.is_due(db))
    outbox.record(db, lost, ARRIVED)

    assert after_failure == (0, None, False)
    assert (waiting(db), row.delivered) == ([], 1)


def test_a_delivery_that_arrived_twice_is_counted_once(db: Session, model: Model) -> None:
    """Both processes say so."""
    row = hook(db, model)
    publish(db, model)
    lost = claim(db)
    later(db, seconds=LEASE + 1)
    again = claim(db)

    outbox.record(db, again, ARRIVED)
    outbox.record(db, lost, ARRIVED)

    assert row.delivered == 1


@pytest.mark.parametrize("table", [Delivery, Webhook])
def test_a_clock_that_was_set_back_holds_nothing_up(db: Session, model: Model, table: Any) -> None:
    """Neither a delivery that was made in the future, nor a lease that ends in a year."""
    hook(db, model)
    publish(db, model)
    ahead = now(db) + timedelta(days=365)
    values = {"lease_until": ahead} if table is Webhook else {"created_at": ahead, "due_at": ahead}
    db.execute(update(table).values(values))

    assert outbox.is_due(db)
    assert len(outbox.claim(db, 10, LEASE)) == 1


def test_many_processes_claim_each_delivery_once(database: Database) -> None:
    """At the same moment, on connections of their own."""
    with database.write() as db:
        model = catalogue.create(db, "birds", "resnet18", 1.0)
        for _ in range(12):
            hook(db, model)
        publish(db, model)

    def take(_: int) -> list[str]:
        with database.write() as db:
            return [one.delivery_id for one in outbox.claim(db, 4, LEASE)]

    with ThreadPoolExecutor(4) as pool:
        taken = [own_id for some in pool.map(take, range(12)) for own_id in some]

    assert len(taken) == len(set(taken)) == 12


# Results


def test_an_arrived_delivery_is_gone(db: Session, model: Model) -> None:
    """Its result stays with the webhook."""
    row = hook(db, model)
    publish(db, model)

    outbox.record(db, claim(db), ARRIVED)

    assert waiting(db) == []
    assert (row.delivered, row.given_up, row.failing_since) == (1, 0, None)
    assert row.last_delivery is not None
    told = {"type": "version.published", "attempt": 1, "arrived": True, "status": 204, "error": None}
    assert {name: row.last_delivery[name] for name in told} == told


def test_a_failed_delivery_is_tried_again_after_waits_that_grow(db: Session, model: Model) -> None:
    """As Standard Webhooks advises, under one id; after the last attempt it is given up."""
    row = hook(db, model)
    publish(db, model)
    ids, waits = set(), []
    while waiting(db):
        claimed = claim(db)
        ids.add(claimed.delivery_id)
        outbox.record(db, claimed, AWAY)
        row.status = "active"  # here it is not about whether it is disabled
        for one in waiting(db):
            waits.append(one.due_at - now(db))
            later(db, seconds=waits[-1].total_seconds() + 1)

    assert len(ids) == 1
    assert [pytest.approx(wait, rel=0.11, abs=timedelta(seconds=1)) for wait in outbox.WAITS] == waits
    assert sum(outbox.WAITS, timedelta()) > timedelta(days=3)
    assert (row.delivered, row.given_up) == (0, 1)


def test_when_a_receiver_is_back_all_that_waits_is_due(db: Session, model: Model) -> None:
    """After an hour of failures nobody waits for hours more."""
    hook(db, model)
    for _ in range(3):
        publish(db, model)
        outbox.record(db, claim(db), AWAY)
    before = outbox.is_due(db)
    later(db, seconds=6)

    outbox.record(db, claim(db), ARRIVED)

    assert not before
    assert len(waiting(db)) == 2
    assert outbox.is_due(db)


def test_a_webhook_that_fails_for_days_is_disabled(db: Session, model: Model) -> None:
    """It says why; what happens from then on is not written for it."""
    row = hook(db, model)
    publish(db, model)
    outbox.record(db, claim(db), AWAY)
    first = row.status
    later(db, days=3)

    outbox.record(db, claim(db), AWAY)
    publish(db, model)

    assert first == "active"
    assert row.status == "disabled"
    assert "every delivery since" in (row.reason or "")
    assert (len(waiting(db)), outbox.is_due(db)) == (1, False)


def test_gone_is_an_answer(db: Session, model: Model) -> None:
    """410 disables at once."""
    row = hook(db, model)
    publish(db, model)

    outbox.record(db, claim(db), Result(410, "the receiver answered 410", 1.0))

    assert (row.status, "410" in (row.reason or "")) == ("disabled", True)


@pytest.mark.parametrize(("result", "status", "due"), [(ARRIVED, "active", True), (AWAY, "disabled", False)])
def test_a_test_that_arrives_makes_a_webhook_active_again(
    db: Session, model: Model, result: Result, status: str, due: bool
) -> None:
    """And what has waited for it is due."""
    row = hook(db, model)
    publish(db, model)
    outbox.record(db, claim(db), AWAY)
    row.status, row.reason = "disabled", "every delivery has failed"

    told = outbox.record_test(db, row.id, result)

    assert (row.status, outbox.is_due(db)) == (status, due)
    assert (told["type"], row.last_delivery) == ("webhook.test", told)


def test_what_nobody_will_send_is_pruned(db: Session, model: Model) -> None:
    """After a week; what is younger stays."""
    hook(db, model)
    publish(db, model)
    later(db, days=8)
    publish(db, model)

    pruned = outbox.prune(db)

    assert (pruned, [json.loads(one.body)["data"]["version"] for one in waiting(db)]) == (1, [2])


# Webhooks


def test_a_secret_has_the_form_of_the_standard(db: Session, model: Model) -> None:
    """Each its own."""
    secrets = {hook(db, model).secret for _ in range(3)}

    assert len(secrets) == 3
    assert all(one.startswith("whsec_") and len(one) == 50 for one in secrets)


def test_a_model_has_a_bounded_number_of_webhooks(db: Session, model: Model) -> None:
    """One more is refused; another model has its own."""
    for _ in range(webhooks.MOST):
        hook(db, model)

    with pytest.raises(LimitReached, match="delete one first"):
        hook(db, model)

    assert hook(db, catalogue.create(db, "cars", "resnet18", 1.0))


def test_a_webhook_belongs_to_one_model(db: Session, model: Model) -> None:
    """Another model neither finds nor deletes it; deleted, it takes its deliveries along."""
    other, row = catalogue.create(db, "cars", "resnet18", 1.0), hook(db, model)
    publish(db, model)

    for act in (webhooks.get, webhooks.delete):
        with pytest.raises(NotThere):
            act(db, other.id, row.id)
    before = webhooks.waiting(db, model.id)
    webhooks.delete(db, model.id, row.id)
    db.expire_all()

    assert before == {row.id: 1}
    assert (webhooks.everything(db, model.id), waiting(db)) == ([], [])


def test_a_result_for_a_deleted_webhook_is_no_error(db: Session, model: Model) -> None:
    """It was deleted while its delivery was made."""
    row = hook(db, model)
    publish(db, model)
    claimed = claim(db)
    webhooks.delete(db, model.id, row.id)

    outbox.record(db, claimed, ARRIVED)

    assert waiting(db) == []
