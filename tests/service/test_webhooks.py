"""`/webhooks`: registered over HTTP, told of what happens, whoever else is slow, hostile or away."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy import select, update

from core.guard import Measured, Verdict
from learners.refining import SessionConfig
from service.webhook_delivery import WebhookDelivery
from store.database import Database, now
from store.models import Delivery, Webhook
from tests.receivers import Receiver, hostile_receiver, is_recent, receiver
from tests.service.conftest import QUICK, Learner, Service, running_service

Until = Callable[[Callable[[], Any], str], None]
_numbers = count(1)


@pytest.fixture(scope="module")
def calling(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose webhooks may reach this machine, and whose predictions are kept."""
    home = tmp_path_factory.mktemp("calling")
    shutil.copyfile(request.getfixturevalue("_migrated_file"), home / "protoquad.db")
    settings = {"webhook_networks": "127.0.0.1", "webhook_seconds": 1.0, "capture": "all", "capture_images": 2}
    with (
        closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as database,
        running_service(database, home, **settings) as service,
    ):
        yield service


@pytest.fixture
def birds(calling: Service) -> Learner:
    """A model of this test's own. It stays: one that goes takes along what is kept with its images at that moment."""
    name = f"birds-{next(_numbers)}"
    assert calling.http.post("/models", json={"name": name}).status_code == 201
    return calling.learner(name)


def register(model: Any, own: Receiver, *events: str) -> Any:
    answer = model.post("/webhooks", json={"url": f"{own.url}/hook", **({"events": events} if events else {})})
    assert answer.status_code == 201, answer.text
    return answer.json()


def listed(model: Any) -> Any:
    (one,) = model.get("/webhooks")["items"]
    return one


def rejected(before: Measured, after: Measured) -> Verdict:
    return Verdict(False, "it is worse", before.accuracy, after.accuracy)


# Events


def test_a_new_version_is_told_and_signed(birds: Learner, until: Until) -> None:
    """With the time of the attempt, and the numbers that the answer had."""
    with receiver() as own:
        made = register(birds, own)
        taught = birds.teach("red").json()
        received = own.next()
        until(lambda: listed(birds)["delivered"] == 1, "the delivery is written down")

    assert received.is_signed_with(made["secret"])
    assert is_recent(received.headers["webhook-timestamp"])
    assert received.event["type"] == "version.published"
    assert received.event["data"] == {
        "model": birds.name,
        "version": taught["version"],
        "kind": "provisional",
        "verdict": None,
        "session": None,
        "classes": 1,
    }
    last = listed(birds)["last_delivery"]
    assert (last["arrived"], last["status"], last["error"], last["attempt"]) == (True, 204, None, 1)


def test_what_a_worker_rejects_is_told_by_the_replica(calling: Service, birds: Learner) -> None:
    """With the session and the reason."""
    strict = calling.make_worker(SessionConfig(QUICK.incremental, augmented=0, judge=rejected))
    with receiver() as own:
        birds.taught("red")
        register(birds, own, "session.rejected")
        session = birds.refine(strict)
        refused = own.next().event

    assert (refused["type"], refused["data"]["session"]) == ("session.rejected", session["id"])
    assert (refused["data"]["kind"], refused["data"]["verdict"]) == ("incremental", "rejected")
    assert refused["data"]["reason"] == session["reason"] == "it is worse"


def test_a_full_inbox_is_told(birds: Learner) -> None:
    """To whom asked for that, and for nothing else."""
    birds.taught("red")
    with receiver() as own:
        register(birds, own, "inbox.full")
        birds.taught("green")
        birds.predict("red", "green", "blue")
        received = own.next()

        assert own.received.empty()
    assert received.event["type"] == "inbox.full"
    assert received.event["data"]["images"] == 3


# Failures


def test_a_delivery_that_failed_comes_again_under_the_same_id(calling: Service, birds: Learner, until: Until) -> None:
    """Here without the wait. The list shows the failure meanwhile."""
    with receiver(500) as own:
        made = register(birds, own)
        birds.taught("red")
        first = own.next()
        until(lambda: listed(birds)["failing_since"], "the failure is written down")
        failing = listed(birds)
        with calling.database.write() as db:
            db.execute(update(Delivery).where(Delivery.webhook_id == made["id"]).values(due_at=now(db)))
        second = own.next()
        until(lambda: listed(birds)["delivered"] == 1, "the delivery is written down")

    assert (failing["status"], failing["waiting"], failing["last_delivery"]["status"]) == ("active", 1, 500)
    assert failing["last_delivery"]["error"] == "the receiver answered 500"
    assert (second.id, second.body) == (first.id, first.body)
    assert second.is_signed_with(made["secret"])
    assert (listed(birds)["failing_since"], listed(birds)["waiting"]) == (None, 0)


def test_what_a_killed_replica_had_claimed_is_delivered_by_another(calling: Service, birds: Learner) -> None:
    """It died between its claim and the delivery: when its lease is over the event comes, and under the same id."""
    with receiver() as own:
        made = register(birds, own)
        with calling.database.write() as db:
            ahead = now(db) + timedelta(seconds=60)
            db.execute(update(Webhook).where(Webhook.id == made["id"]).values(lease_until=ahead))
        birds.taught("red")
        with calling.database.write() as db:
            waiting = db.scalars(select(Delivery.id).where(Delivery.webhook_id == made["id"])).all()
            before = own.received.empty()
            db.execute(update(Webhook).where(Webhook.id == made["id"]).values(lease_until=now(db)))
        received = own.next()

    assert before
    assert waiting == [received.id]


def test_two_replicas_deliver_each_event_once(calling: Service, birds: Learner, until: Until) -> None:
    """Both look for something to do all the time."""
    other = WebhookDelivery(calling.database, calling.settings, calling.context.metrics.deliveries)
    with receiver() as own:
        register(birds, own, "version.published")
        taught = [birds.teach(look).json()["version"] for look in ("red", "green", "blue", "yellow")]
        received = [own.next() for _ in taught]
        until(lambda: listed(birds)["waiting"] == 0, "nothing waits")
        other.close()

        assert own.received.empty()
    assert [one.event["data"]["version"] for one in received] == taught


@pytest.mark.parametrize("way", ["silent", "endless head", "slow head"])
def test_a_hostile_receiver_holds_up_neither_teaching_nor_another_webhook(
    birds: Learner, way: str, until: Until
) -> None:
    """The other one gets its event while the first still waits for its answer."""
    with hostile_receiver(way) as slow, receiver() as own:
        register(birds, slow)
        register(birds, own)
        birds.taught("red")
        slow.next()
        received = own.next()
        again = birds.predict("red")
        until(lambda: birds.get("/webhooks")["items"][0]["failing_since"], "the failure is written down")

    assert received.event["type"] == "version.published"
    assert again["version"] == 1


def test_a_deleted_model_takes_its_webhooks_along(calling: Service) -> None:
    """With what waits for them."""
    calling.http.post("/models", json={"name": "gone"})
    with receiver(500) as own:
        made = register(calling.learner("gone"), own)
        calling.learner("gone").taught("red")
        own.next()
        calling.http.delete("/models/gone")

    with calling.database.read() as db:
        assert db.get(Webhook, made["id"]) is None
        assert db.scalars(select(Delivery).where(Delivery.webhook_id == made["id"])).all() == []


# Over HTTP


def test_a_secret_is_shown_once(birds: Learner) -> None:
    """In the answer to its making, which no cache may keep."""
    with receiver() as own:
        answer = birds.post("/webhooks", json={"url": f"{own.url}/hook"})

    made = answer.json()
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    assert made["secret"].startswith("whsec_")
    assert made["secret"] not in birds.ask("GET", "/webhooks").text
    assert listed(birds) == {name: value for name, value in made.items() if name != "secret"}
    assert made["events"] == ["version.published", "session.rejected", "inbox.full"]


@pytest.mark.parametrize(("status", "arrived"), [(200, True), (401, False)])
def test_a_test_says_what_came_of_it(birds: Learner, status: int, arrived: bool) -> None:
    """At once, and the list has it too."""
    with receiver(status) as own:
        made = register(birds, own)
        answer = birds.post(f"/webhooks/{made['id']}/test").json()
        received = own.next()

    assert (answer["type"], answer["arrived"], answer["status"]) == ("webhook.test", arrived, status)
    assert received.event["data"] == {"model": birds.name}
    assert received.is_signed_with(made["secret"])
    assert listed(birds)["last_delivery"] == answer


def test_a_deleted_webhook_is_told_nothing(birds: Learner) -> None:
    """And deleting it again says that it is not there."""
    with receiver() as own:
        made = register(birds, own)
        first = birds.ask("DELETE", f"/webhooks/{made['id']}")
        second = birds.ask("DELETE", f"/webhooks/{made['id']}")
        birds.taught("red")
        test = birds.post(f"/webhooks/{made['id']}/test")

        assert own.received.empty()
    assert (first.status_code, second.status_code, test.status_code) == (204, 404, 404)
    assert birds.get("/webhooks")["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"url": "https://192.168.0.1/hook"},
        {"url": "nonsense"},
        {"url": "https://example.org/", "events": ["version.forgotten"]},
        {"url": "https://example.org/", "events": []},
        {"url": "https://example.org/", "secret": "mine"},
        {},
    ],
)
def test_a_webhook_that_cannot_be_is_refused(birds: Learner, body: Any) -> None:
    """With the field at fault, and nothing is stored."""
    answer = birds.post("/webhooks", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"]
    assert birds.get("/webhooks")["items"] == []


def test_unless_listed_no_private_address_is_reached(service: Any, learner: Any) -> None:
    """The default: the registration of an address is refused, that of a name fails when it is connected to."""
    by_address = learner.post("/webhooks", json={"url": "https://127.0.0.1/hook"})
    by_name = learner.post("/webhooks", json={"url": "https://localhost/hook"})

    test = learner.post(f"/webhooks/{by_name.json()['id']}/test").json()

    assert (by_address.status_code, by_name.status_code) == (422, 201)
    assert "PROTOQUAD_WEBHOOK_NETWORKS" in by_address.json()["detail"]
    assert (test["arrived"], test["status"]) == (False, None)
    assert "is not a public address" in test["error"]
    assert service.settings.webhook_networks == ""


def test_attempts_are_counted(calling: Service, birds: Learner) -> None:
    """For those who watch."""
    with receiver() as own:
        register(birds, own)
        birds.taught("red")
        own.next()

    metrics = calling.http.get("/metrics").text
    assert 'protoquad_webhook_deliveries_total{outcome="arrived"}' in metrics
