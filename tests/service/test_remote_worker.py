"""Sessions in another process: cancelled through the API, given back by one that stops, taken from one that hangs."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from store.database import Database
from store.heartbeats import heartbeats
from store.models import SessionRow
from tests.processes import Running
from workers.heartbeat import STALLED

Until = Callable[[Callable[[], Any], str], None]
LEASE = 2.0
SECONDS_TO_HEAR = 5.0  # of a cancellation
SECONDS_TO_STOP = 10.0


@pytest.fixture
def endless(database: Database, redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts a worker whose sessions do not end: `slow` or `hang`."""
    root = Path(__file__).parents[2]
    settings = {
        "PROTOQUAD_HOME": str(tmp_path / "worker"),
        "PROTOQUAD_DATABASE_URL": database.url,
        "PROTOQUAD_BROKER_URL": redis_url,
        "PROTOQUAD_LEASE_SECONDS": str(LEASE),
        "PYTHONPATH": str(root),
    }
    with ExitStack() as stack:

        def started(kind: str, **environment: str) -> Running:
            worker = Running([kind], {**settings, **environment}, module="tests.endless_worker")
            stack.callback(worker.close)
            return worker

        yield started


def row(database: Database, session_id: int) -> SessionRow:
    with database.read() as db:
        return db.get_one(SessionRow, session_id)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_session_elsewhere_is_cancelled_and_given_back(
    start: Callable[..., Any], endless: Callable[..., Running], database: Database, redis_url: str, until: Until
) -> None:
    """It hears of a cancellation within seconds; told to stop, it lets the next worker have the session at once."""
    learner = start(broker_url=redis_url).learner()
    learner.taught("red", "green")
    first = learner.get("/sessions")["items"][0]["id"]
    worker = endless("slow")
    worker.wait_for("session started")

    asked = time.monotonic()
    assert learner.post(f"/sessions/{first}/cancel").status_code == 202
    until(lambda: learner.get(f"/sessions/{first}")["status"] == "cancelled", "the session is cancelled")
    heard = time.monotonic() - asked

    learner.taught("blue")
    second = learner.get("/sessions")["items"][0]["id"]
    worker.wait_for("session started")
    stopped = time.monotonic()
    assert worker.stop() == 0
    took = time.monotonic() - stopped

    given_back = row(database, second)
    assert heard < SECONDS_TO_HEAR
    assert took < SECONDS_TO_STOP
    assert second != first
    assert (given_back.status, given_back.owner, given_back.failures) == ("running", None, 0)
    assert learner.service.worker.run_next()
    assert row(database, second).status == "succeeded"


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_session_that_stands_still_is_taken_over(
    start: Callable[..., Any], endless: Callable[..., Running], database: Database, tmp_path: Path, until: Until
) -> None:
    """Its worker ends itself, though its lease was renewed all the time; the next one counts a failure and goes on."""
    service = start()
    service.learner().taught("red", "green")
    worker = endless("hang", PROTOQUAD_STALL_SECONDS="4")  # longer than a lease: it is not the lease that ends it
    session = worker.wait_for("session started")["session"]
    worker.wait_for("no step for too long; this worker ends")
    assert worker.process.wait(60) == STALLED

    until(service.worker.run_next, "the session is free")
    taken_over = row(database, session)
    assert (taken_over.status, taken_over.attempt, taken_over.failures) == ("succeeded", 2, 1)
    assert len(heartbeats(tmp_path / "worker")) == 1, "its pulse is left behind, and ages"
