"""Watching a session ends with the right to watch it, is bounded in number, and costs the database little."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from anyio import CapacityLimiter
from sqlalchemy import event

from service import event_stream
from service.event_stream import EventStream
from service.routes import sessions
from service.session_watch import Places, Shared, seconds_to_next_poll
from store import api_keys
from store.database import Database

Until = Callable[[Callable[[], Any], str], None]
Start = Callable[..., Any]
SECONDS = 20.0


class Stream:
    """A stream of events that is read in a thread of its own."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        self.lines: list[str] = []
        self.begun, self.ended = threading.Event(), threading.Event()
        self._client, self._path = client, path
        threading.Thread(target=self._read, daemon=True).start()
        assert self.begun.wait(SECONDS), "the stream did not begin"

    def _read(self) -> None:
        with self._client.stream("GET", self._path) as answer:
            for line in answer.iter_lines():
                self.lines.append(line)
                self.begun.set()
        self.ended.set()


def make_key(database: Database, scope: str) -> str:
    with database.write() as db:
        return api_keys.create(db, scope, [scope])


def revoke(database: Database, key: str) -> None:
    with database.write() as db:
        api_keys.revoke(db, api_keys.key_id(key) or "")


def with_key(service: Any, key: str) -> httpx.Client:
    return httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=SECONDS)


def queued_session(learner: Any) -> str:
    """The path of a session that no worker takes up."""
    return f"{learner.prefix}/sessions/{learner.teach('red').json()['session']['id']}"


@contextmanager
def watched(service: Any, path: str) -> Iterator[httpx.Response]:
    with httpx.Client(base_url=service.url, timeout=SECONDS) as client, client.stream("GET", f"{path}/events") as read:
        yield read


# Whose stream it is


def test_a_stream_ends_when_its_key_is_revoked(start: Start, database: Database) -> None:
    """Within moments, though nothing happens in the session; the stream of another key goes on."""
    keys = {scope: make_key(database, scope) for scope in ("teach", "predict")}
    service = start()
    service.http.headers["Authorization"] = f"Bearer {keys['teach']}"
    session = queued_session(service.learner())
    with with_key(service, keys["predict"]) as reader:
        ours, theirs = Stream(reader, f"{session}/events"), Stream(service.http, f"{session}/events")

        revoke(database, keys["predict"])

        assert ours.ended.wait(SECONDS)
        assert not theirs.ended.is_set()
        assert reader.get(f"{session}/events").status_code == 401
        service.learner().post(f"{session}/cancel")
        assert theirs.ended.wait(SECONDS)
        assert "event: cancelled" in theirs.lines
        assert "event: cancelled" not in ours.lines


def test_a_first_key_ends_the_streams_of_those_without_one(start: Start, database: Database) -> None:
    """Open access ends for everybody, also for who is in."""
    service = start()
    stream = Stream(service.http, f"{queued_session(service.learner())}/events")

    make_key(database, "predict")

    assert stream.ended.wait(SECONDS)


# How many, and for how long


def test_more_streams_than_there_are_places_are_told_to_come_back(start: Start, until: Until) -> None:
    """503 with a time; who leaves makes room."""
    service = start(max_streams=2)
    session = queued_session(service.learner())
    with ExitStack() as stack:
        first, second = (stack.enter_context(watched(service, session)) for _ in range(2))
        third = service.http.get(f"{session}/events")

        assert (first.status_code, second.status_code, third.status_code) == (200, 200, 503)
        assert third.json()["type"] == "/problems/too-many-streams"
        assert third.headers["retry-after"] == "5"
        assert service.http.get(session).status_code == 200
    until(lambda: service.context.session_watch.streams.taken == 0, "the places are free")
    with watched(service, session) as again:
        assert again.status_code == 200


def test_more_waiters_than_there_are_places_do_not_wait(start: Start, until: Until) -> None:
    """To wait is a preference: whoever finds no place is answered 202 at once, and taught all the same."""
    service = start(max_streams=1)
    learner = service.learner()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(learner.teach, "red", Prefer="wait=60")
        until(lambda: service.context.session_watch.waiters.full, "the first one waits")
        hurried = learner.teach("green", Prefer="wait=60")
        learner.post(f"/sessions/{hurried.json()['session']['id']}/cancel")
        waited = waiting.result(SECONDS)

    assert (hurried.status_code, hurried.json()["session"]["status"]) == (202, "queued")
    assert "preference-applied" not in hurried.headers
    assert (waited.headers["preference-applied"], waited.json()["session"]["status"]) == ("wait=60", "cancelled")
    assert service.context.session_watch.waiters.taken == 0


def test_a_stream_has_an_end(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, so that the reader comes back for more; what it has seen is not told again."""
    monkeypatch.setattr(sessions, "LONGEST_STREAM", 0.2)
    session = queued_session(learner)

    answers = [
        learner.service.http.get(f"{session}/events", headers=headers) for headers in ({}, {"Last-Event-ID": "0"})
    ]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert ["event: queued" in answer.text for answer in answers] == [True, False]
    assert learner.service.http.get(session).json()["status"] == "queued"


def test_a_reader_that_stops_reading_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose other end takes nothing more would hold it for ever."""
    monkeypatch.setattr(event_stream, "SECONDS_TO_SEND", 0.05)
    places, taken = Places(1), []

    async def endless() -> AsyncIterator[str]:
        while True:
            yield "data: more\n\n"

    async def send(message: Any) -> None:
        taken.append(places.taken)
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive() -> Any:
        return await asyncio.Event().wait()

    async def stream() -> None:
        async with asyncio.timeout(SECONDS):
            await EventStream(endless(), places)({"type": "http"}, receive, send)

    asyncio.run(stream())

    assert (taken, places.taken) == ([1, 1], 0)


# What it costs


def test_those_who_watch_a_session_ask_the_database_together(start: Start, database: Database, until: Until) -> None:
    """Twenty streams ask no more often than two would: on their own they would ask fifty times a second."""
    service = start(poll_seconds=0.4)
    session = queued_session(service.learner())
    asked: list[float] = []

    def count(*arguments: Any) -> None:
        if "FROM session_events" in arguments[2]:
            asked.append(time.monotonic())

    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(watched(service, session))
        event.listen(database.engine, "before_cursor_execute", count)
        until(lambda: len(asked) >= 6, "the database was asked some times")
        event.remove(database.engine, "before_cursor_execute", count)

    assert asked[5] - asked[0] >= 5 * 0.2 * 0.9


def shared(ask: Callable[[int], int], seconds: float = 60.0) -> Shared[int, int]:
    return Shared(ask, seconds, CapacityLimiter(4))


def test_a_question_is_asked_once_for_all() -> None:
    """Of each kind one, whoever asks it while it is fresh; later again."""
    asked: list[int] = []

    async def ask_often() -> tuple[list[int], list[int]]:
        fresh, stale = shared(lambda key: asked.append(key) or key * 2), shared(lambda key: asked.append(key) or 0, 0)  # type: ignore[func-returns-value]
        answers = await asyncio.gather(*(fresh(key) for key in (1, 2, 1, 2, 1)))
        once = list(asked)
        for _ in range(2):
            await stale(3)
        return answers, once

    answers, once = asyncio.run(ask_often())

    assert (answers, sorted(once)) == ([2, 4, 2, 4, 2], [1, 2])
    assert asked.count(3) == 2


def test_who_stops_waiting_takes_nothing_from_the_others() -> None:
    """And a question under way is not asked a second time, however long it takes."""
    go_on, asked = threading.Event(), []

    def slow(key: int) -> int:
        asked.append(key)
        assert go_on.wait(SECONDS)
        return key

    async def some_leave() -> int:
        ask = shared(slow, 0.0)
        leaving, staying = asyncio.ensure_future(ask(7)), asyncio.ensure_future(ask(7))
        while not asked:
            await asyncio.sleep(0)
        leaving.cancel()
        late = asyncio.ensure_future(ask(7))
        await asyncio.sleep(0)
        go_on.set()
        return await staying + await late

    assert asyncio.run(some_leave()) == 14
    assert asked == [7]


def test_looks_become_rarer_the_longer_one_waits() -> None:
    """Quick at first, once a second in the end."""
    assert [seconds_to_next_poll(waited) for waited in (0, 1, 5, 60)] == [0.2, 0.2, 0.5, 1.0]
