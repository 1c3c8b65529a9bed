"""With the database away, what needs no database goes on: predictions and the probes that keep the service alive."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from learners.refining import Learned, learn
from store.database import Database
from store.models import SessionRow
from tests.service.conftest import QUICK
from workers.session_worker import SessionWorker

Until = Callable[[Callable[[], Any], str], None]
Draw = Callable[..., bytes]
MORE_THAN_THREADS = 60  # the server has forty for work that may block


@contextmanager
def away(database: Database, instead: Callable[[], object]) -> Iterator[None]:
    """No connection is left, and whoever wants a new one gets this instead."""
    back = threading.Event()

    def connect(*_: Any) -> None:
        if not back.is_set():
            instead()

    event.listen(database.engine, "do_connect", connect)
    before = database.engine.pool
    database.engine.dispose()
    # What somebody held when the rest was closed comes back to the old pool, which nobody closes again.
    event.listen(before, "checkin", lambda _, record: record.invalidate())
    try:
        yield
    finally:
        back.set()
        before.dispose()  # of what came back before anybody listened


def unanswered(database: Database) -> Exception:
    """What the driver raises when there is nobody to connect to."""
    error: Exception = database.engine.dialect.loaded_dbapi.OperationalError("nobody answers")
    if isinstance(error, sqlite3.Error):
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    return error


def test_a_database_that_is_gone_stops_no_prediction(start: Callable[..., Any], database: Database, draw: Draw) -> None:
    """What needs it answers 503 and when to come back; when it is back, so is everything."""
    service = start()
    learner = service.learner()
    (red,) = learner.taught("red")
    before = learner.predict_one_by_one("red", "green")

    def refuse() -> None:
        raise unanswered(database)

    with away(database, refuse):
        during = learner.predict_one_by_one("red", "green")
        probes = [service.http.get(path).status_code for path in ("/livez", "/readyz", "/openapi.json")]
        metrics = service.http.get("/metrics")
        refused = [
            learner.ask("GET", "/classes"),
            learner.teach("green"),
            learner.ask("DELETE", f"/classes/{red['id']}"),
            learner.post("/predict?version=0", files={"images": draw("red")}),
        ]

    assert during == before
    assert probes == [200, 200, 200]
    assert "protoquad_database_up 0.0" in metrics.text
    assert 'protoquad_served_version{model="default"} 1.0' in metrics.text
    assert [answer.status_code for answer in refused] == [503] * 4
    assert {answer.headers["retry-after"] for answer in refused} == {"5"}
    assert {answer.json()["type"] for answer in refused} == {"/problems/database-unavailable"}
    assert learner.teach("green").status_code == 202


def test_a_stream_of_events_outlives_an_outage(start: Callable[..., Any], database: Database, until: Until) -> None:
    """Nothing is heard while the database is away, and everything when it is back."""
    service = start()
    learner = service.learner()
    session = learner.teach("red").json()["session"]["id"]
    refused, heard = threading.Event(), []

    def refuse() -> None:
        refused.set()
        raise unanswered(database)

    def watch() -> None:
        with httpx.stream("GET", f"{service.url}/sessions/{session}/events", timeout=60) as stream:
            heard.extend(stream.iter_lines())

    with ThreadPoolExecutor() as pool:
        watching = pool.submit(watch)
        until(lambda: service.context.session_watch.streams.taken, "the stream has begun")
        with away(database, refuse):
            until(lambda: refused.is_set(), "the database was asked in vain")
        assert learner.post(f"/sessions/{session}/cancel").status_code == 202
        watching.result(60)

    assert [line for line in heard if line.startswith("event: ")] == ["event: queued", "event: cancelled"]


def test_an_outage_while_it_waits_does_not_unteach_a_class(
    start: Callable[..., Any], database: Database, until: Until
) -> None:
    """Who asked to wait is answered 202: the class is there, and what became of the session can be asked later."""
    service = start()
    learner = service.learner()

    def refuse() -> None:
        raise unanswered(database)

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(learner.teach, "red", Prefer="wait=60")
        until(lambda: service.context.session_watch.waiters.taken, "it waits")
        with away(database, refuse):
            answer = waiting.result(30)

    assert (answer.status_code, answer.json()["class"]["name"]) == (202, "red")
    assert learner.labels("red") == ["red"]


def test_a_database_that_does_not_answer_stops_no_prediction(
    start: Callable[..., Any], database: Database, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests wait for it, predictions and probes do not queue up behind them."""
    service = start()
    learner = service.learner()
    learner.taught("red")
    go_on, waiting, plain = threading.Event(), [], database.read

    @contextmanager
    def counted() -> Iterator[Any]:
        waiting.append(None)
        with plain() as db:
            yield db

    monkeypatch.setattr(database, "read", counted)
    with ThreadPoolExecutor(MORE_THAN_THREADS) as pool, away(database, lambda: go_on.wait(60)):
        asked = [
            pool.submit(httpx.get, f"{service.url}/classes", timeout=60, verify=False) for _ in range(MORE_THAN_THREADS)
        ]
        until(lambda: len(waiting) >= 40, "all threads wait for the database")
        try:
            with httpx.Client(base_url=service.url, timeout=30, verify=False) as impatient:
                service.http, patient = impatient, service.http
                during = learner.labels("red")
                probes = [impatient.get(path).status_code for path in ("/livez", "/readyz")]
                service.http = patient
        finally:
            go_on.set()
        answers = [one.result().status_code for one in asked]

    assert during == ["red"]
    assert probes == [200, 200]
    assert answers == [200] * MORE_THAN_THREADS


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_database_that_goes_away_during_a_session_is_not_the_sessions_failure(
    start: Callable[..., Any], database: Database, until: Until
) -> None:
    """Even if it stays away for longer than a lease: whoever ran it gives it back, and it is run again."""
    service = start(replica=True, lease_seconds=0.4)
    learner = service.learner()
    learner.taught("red", "green")
    tries: list[None] = []
    back = threading.Event()

    def refuse() -> None:
        if len(tries) == 10:  # a second at least
            back.set()
        tries.append(None)
        raise unanswered(database)

    def learn_then(*arguments: Any) -> Learned:
        learned = learn(*arguments)
        threading.Thread(target=outage).start()
        assert gone.wait(60)
        return learned

    gone = threading.Event()

    def outage() -> None:
        with away(database, refuse):
            gone.set()
            assert back.wait(60)

    assert SessionWorker(database, service.settings, "first", config=QUICK, learn=learn_then).run_next()
    between = learner.get("/sessions")["items"][0]
    with database.read() as db:
        row = db.get_one(SessionRow, between["id"])

    assert (row.status, row.owner, row.failures, row.error) == ("running", None, 0, None)
    until(SessionWorker(database, service.settings, "second").run_next, "another worker takes it up")
    assert learner.get("/sessions")["items"][0]["status"] == "succeeded"
