"""A scrape says what the service does, under few labels, and answers whatever the database does."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from service.metrics import Metrics
from store import catalogue
from store.database import Database
from store.models import Base, Model, SessionRow
from tests.service.scraping import scrape, value

SECONDS = 10.0
T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Database]:
    """A database for tests that do not depend on which one it is."""
    opened = Database(f"sqlite:///{tmp_path}/small.db")
    Base.metadata.create_all(opened.engine)
    yield opened
    opened.close()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


# The engine


def test_predictions_are_counted_by_outcome(metrics: Metrics) -> None:
    """The share of unknown images shows when to teach."""
    metrics.predicted("birds", known=3, unknown=1)
    metrics.predicted("birds", known=0, unknown=1)

    outcomes = [value(metrics, "protoquad_predictions_total", model="birds", outcome=o) for o in ("known", "unknown")]
    assert outcomes == [3, 2]


def test_batches_and_queue_are_measured(metrics: Metrics) -> None:
    """How full batches are, how long images wait and how many do."""
    metrics.batched(6, 0.02)
    metrics.queue_images.set(9)

    seen = scrape(metrics)
    assert seen["protoquad_batch_images_sum", frozenset()] == 6
    assert seen["protoquad_batch_images_bucket", frozenset({("le", "4.0")})] == 0
    assert seen["protoquad_batch_images_bucket", frozenset({("le", "8.0")})] == 1
    assert seen["protoquad_queue_delay_seconds_sum", frozenset()] == 0.02
    assert seen["protoquad_queue_images", frozenset()] == 9


def test_a_deleted_model_is_no_longer_served(metrics: Metrics) -> None:
    """Its gauges go, whichever replica deleted it; the others' stay."""
    metrics.serving({"birds": (4, 10), "default": (2, 5)})

    metrics.serving({"default": (2, 5)})

    names = ("protoquad_served_version", "protoquad_served_classes")
    assert [value(metrics, name, model="default") for name in names] == [2, 5]
    assert [value(metrics, name, model="birds") for name in names] == [None, None]


def test_the_predictions_of_a_deleted_model_are_forgotten(metrics: Metrics) -> None:
    """Also of one whose last prediction ended after it was deleted; a new model of that name counts from zero."""
    for model in ("birds", "default"):
        metrics.predicted(model, known=3, unknown=1)
    metrics.serving({"birds": (4, 10), "default": (2, 5)})

    metrics.serving({"default": (2, 5)})
    deleted = models(metrics)
    metrics.predicted("birds", known=1, unknown=0)
    late = models(metrics)
    metrics.serving({"default": (2, 5)})
    again = models(metrics)
    metrics.predicted("birds", known=2, unknown=0)

    assert (deleted, late, again) == ({"default"}, {"birds", "default"}, {"default"})
    assert value(metrics, "protoquad_predictions_total", model="birds", outcome="known") == 2


def models(metrics: Metrics) -> set[str]:
    return {text for _, labels in scrape(metrics) for name, text in labels if name == "model"}


def test_two_applications_do_not_share_their_numbers() -> None:
    """Each has a registry of its own."""
    first, second = Metrics(), Metrics()

    first.serving({"birds": (4, 10)})

    assert value(second, "protoquad_served_version", model="birds") is None


# The database


def model(db: Session, name: str) -> Model:
    return catalogue.create(db, name, "some", 1.0)


def ended(db: Session, owner: Model, status: str, seconds: float) -> None:
    finish = T0 + timedelta(seconds=seconds)
    db.add(SessionRow(model_id=owner.id, status=status, ready_at=T0, created_at=T0, started_at=T0, finished_at=finish))


def queued(db: Session, owner: Model, ago: float) -> None:
    moment = datetime.now(UTC) - timedelta(seconds=ago)
    db.add(SessionRow(model_id=owner.id, status="queued", ready_at=moment, created_at=moment))


def test_sessions_are_counted_by_state(database: Database) -> None:
    """Every state has a number, also those that no session is in, and the oldest that waits has an age."""
    with database.write() as db:
        ended(db, model(db, "a"), "failed", 3)
        queued(db, model(db, "b"), ago=100)
        queued(db, model(db, "c"), ago=10)

    seen = scrape(Metrics(database, patience=SECONDS))

    states = {dict(labels)["status"]: number for (name, labels), number in seen.items() if name == "protoquad_sessions"}
    assert states == {"queued": 2, "running": 0, "succeeded": 0, "failed": 1, "cancelled": 0}
    assert 100 <= seen["protoquad_oldest_queued_session_seconds", frozenset()] < 100 + SECONDS
    assert seen["protoquad_database_up", frozenset()] == 1


def running(db: Session, owner: Model, lease: float) -> None:
    moment = datetime.now(UTC)
    until = moment + timedelta(seconds=lease)
    db.add(SessionRow(model_id=owner.id, status="running", ready_at=moment, created_at=moment, lease_until=until))


@pytest.mark.parametrize(("leases", "seconds"), [((), 0), ((30, 5), 0), ((30, -100, -40), 100)])
def test_a_session_that_nobody_holds_has_an_age(database: Database, leases: tuple[float, ...], seconds: float) -> None:
    """Of all those whose worker is lost the one that waits longest; a lease that still holds is no trouble."""
    with database.write() as db:
        for number, lease in enumerate(leases):
            running(db, model(db, f"model {number}"), lease)

    seen = scrape(Metrics(database, patience=SECONDS))

    assert seconds <= seen["protoquad_abandoned_session_seconds", frozenset()] < seconds + SECONDS * bool(seconds) + 1


class Clock:
    """One that a test moves on; the database's own cannot be set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_ages_when_the_clock_was_set_back(database: Database) -> None:
    """What was queued tomorrow still waits longer and longer, also beside one that was queued just now."""
    clock = Clock()
    metrics = Metrics(database, cache=0, patience=SECONDS, clock=clock)
    with database.write() as db:
        queued(db, model(db, "a"), ago=-86400)
        queued(db, model(db, "b"), ago=0)

    at_first = value(metrics, "protoquad_oldest_queued_session_seconds")
    clock.now += 700
    later = value(metrics, "protoquad_oldest_queued_session_seconds")

    assert at_first is not None
    assert at_first < SECONDS
    assert later == 700


def test_a_lease_that_was_given_before_the_clock_was_set_back_ages(database: Database) -> None:
    """Nobody renews it; one that is renewed is another lease each time."""
    clock = Clock()
    metrics = Metrics(database, cache=0, patience=SECONDS, clock=clock)
    with database.write() as db:
        running(db, model(db, "lost"), lease=86400)
        running(db, model(db, "living"), lease=86400)
    value(metrics, "protoquad_abandoned_session_seconds")
    clock.now += 90
    with database.write() as db:
        living = db.scalars(select(SessionRow).order_by(SessionRow.id.desc()).limit(1)).one()
        living.lease_until = datetime.now(UTC) + timedelta(seconds=30)

    assert value(metrics, "protoquad_abandoned_session_seconds") == 90


def test_a_duration_is_never_negative(database: Database) -> None:
    """Also of a session that ended before it started, by a clock that was set back: a sum must not fall."""
    with database.write() as db:
        ended(db, model(db, "a"), "succeeded", -86400)
        ended(db, model(db, "b"), "succeeded", 2)

    took = value(Metrics(database, patience=SECONDS), "protoquad_session_duration_seconds_sum", status="succeeded")

    assert took == pytest.approx(2, abs=0.01)


def test_session_durations_are_read_as_a_histogram(database: Database) -> None:
    """From start to end, by outcome; one that never started has no duration."""
    with database.write() as db:
        owner = model(db, "a")
        for seconds in (0.5, 8.25, 9, 7200):
            ended(db, owner, "succeeded", seconds)
        ended(db, owner, "failed", 2)
        db.add(SessionRow(model_id=owner.id, status="cancelled", ready_at=T0, created_at=T0, finished_at=T0))

    metrics = Metrics(database, patience=SECONDS)

    seen = scrape(metrics)
    name = "protoquad_session_duration_seconds"
    succeeded = {
        dict(labels)["le"]: number
        for (found, labels), number in seen.items()
        if found == f"{name}_bucket" and ("status", "succeeded") in labels
    }
    assert {bound: succeeded[bound] for bound in ("1.0", "5.0", "10.0", "3600.0", "+Inf")} == {
        "1.0": 1,
        "5.0": 1,
        "10.0": 3,
        "3600.0": 3,
        "+Inf": 4,
    }
    by_outcome = {dict(labels)["status"]: number for (found, labels), number in seen.items() if found == f"{name}_sum"}
    assert by_outcome == {"succeeded": pytest.approx(7217.75, abs=0.01), "failed": pytest.approx(2, abs=0.01)}


def test_a_scrape_of_an_empty_database_has_no_age(small: Database) -> None:
    """Nothing waits: zero, and not a gap in the graph."""
    assert value(Metrics(small, patience=SECONDS), "protoquad_oldest_queued_session_seconds") == 0


def test_a_scrape_answers_without_its_database(small: Database) -> None:
    """The rest is told, the database is said to be down, and no number is made up."""
    metrics = Metrics(small, cache=0, patience=SECONDS)
    metrics.serving({"birds": (4, 10)})
    before = value(metrics, "protoquad_database_up")
    break_sessions(small)

    seen = scrape(metrics)

    assert before == 1
    assert seen["protoquad_database_up", frozenset()] == 0
    assert seen["protoquad_served_version", frozenset({("model", "birds")})] == 4
    assert not any(name.startswith("protoquad_session") for name, _ in seen)


def test_a_database_that_comes_back_is_up_again(small: Database) -> None:
    """An outage is not remembered beyond the cache."""
    metrics = Metrics(small, cache=0, patience=SECONDS)
    break_sessions(small)
    during = value(metrics, "protoquad_database_up")
    with small.engine.begin() as connection:
        connection.execute(text("ALTER TABLE hidden RENAME TO sessions"))

    after = value(metrics, "protoquad_database_up")

    assert (during, after) == (0, 1)


def test_a_database_that_hangs_does_not_hold_the_scrape_up(small: Database) -> None:
    """The question goes on in its thread, one at a time; an answer from before is not shown as true now."""
    stuck = StuckDatabase(small)
    metrics = Metrics(stuck, cache=0, patience=0.05)  # type: ignore[arg-type]
    stuck.release.set()
    up_at_first = comes_up(metrics)
    stuck.release.clear()
    asked_before = stuck.asked

    during = [value(metrics, "protoquad_database_up") for _ in range(3)]
    asked = stuck.asked - asked_before
    stuck.release.set()

    assert (up_at_first, during, asked, comes_up(metrics)) == (True, [0, 0, 0], 1, True)


def test_scrapes_within_the_cache_ask_once(small: Database) -> None:
    """Several scrapers cost what one does."""
    counting = StuckDatabase(small)
    counting.release.set()
    metrics = Metrics(counting, cache=1000, patience=SECONDS)  # type: ignore[arg-type]

    for _ in range(3):
        assert value(metrics, "protoquad_database_up") == 1

    assert counting.asked == 1


def comes_up(metrics: Metrics) -> bool:
    """Whether a scrape says so in the end; each waits a little for the database."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if value(metrics, "protoquad_database_up") == 1:
            return True
    return False


class StuckDatabase:
    """A database that answers when it is released, and counts who asks."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.asked = 0
        self.release = threading.Event()

    @contextmanager
    def read(self) -> Iterator[Session]:
        self.asked += 1
        self.release.wait(SECONDS)
        with self.database.read() as db:
            yield db


def break_sessions(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE sessions RENAME TO hidden"))
