"""Streams of events: read from bytes, over lost connections, and without streams at all."""

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from protoquad_client import Event, NotFound, ServiceUnreachable, WaitTimeout, event_stream
from protoquad_client.event_stream import EventReader, Waiting

from tests.client.misbehaving import Misbehaving, answer, broken_stream, drop, problem, stream
from tests.client.test_retries import SESSION

QUEUED = answer(200, SESSION)
RUNNING = answer(200, {**SESSION, "status": "running"})
DONE = answer(200, {**SESSION, "status": "succeeded", "version": 2})
Connect = Callable[..., Any]


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What would be slept; nothing is."""
    slept: list[float] = []

    async def note(seconds: float) -> None:
        slept.append(seconds)

    for name in ("transport.sleep", "resources.sleep"):
        monkeypatch.setattr(f"protoquad_client.{name}", slept.append)
    for name in ("async_transport.sleep", "async_resources.sleep"):
        monkeypatch.setattr(f"protoquad_client.{name}", note)
    return slept


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_are_read_however_their_bytes_arrive(size: int) -> None:
    """Comments, all line ends, ids that stay, a line separator within a text."""
    text = (
        "id: 1\nretry: 1000\n\n"
        ": still here\n\n"
        'event: taught\r\ndata: {"name": "owl\u2028"}\r\n\r\n'
        'event: version\rid: 2\rdata: {\rdata: "number": 3}\r\r'
        "data: 7\n\nevent: cut off\ndata: {"
    ).encode()
    reader, found = EventReader(), list[Event]()

    for start in range(0, len(text), size):
        found += reader.feed(text[start : start + size])

    assert found == [
        Event("taught", {"name": "owl\u2028"}, "1"),
        Event("version", {"number": 3}, "2"),
        Event("message", {"value": 7}, "2"),
    ]
    assert reader.headers()["Last-Event-ID"] == "2"


@pytest.mark.usefixtures("no_pauses")
def test_a_lost_connection_is_made_again_after_the_last_event(connect: Connect, misbehaving: Misbehaving) -> None:
    """However it was lost; the stream of a session ends with the session."""
    first = broken_stream('id: 4\nevent: running\ndata: {}\n\nid: 5\nevent: progress\ndata: {"fraction')
    second = stream('id: 5\nevent: progress\ndata: {"fraction": 0.5}\n\n')
    last = stream("id: 6\nevent: succeeded\ndata: {}\n\n")
    client = connect(misbehaving.will(first, drop, problem(503, "too-many-streams"), second, RUNNING, last))

    events = list(client.sessions.events(1))

    assert [event.name for event in events] == ["running", "progress", "succeeded"]
    sent = [seen.headers.get("last-event-id") for seen in misbehaving.seen]
    assert sent == [None, "4", "4", "4", None, "5"]
    assert [seen.path for seen in misbehaving.seen][4:] == ["/sessions/1", "/sessions/1/events"]


@pytest.mark.usefixtures("no_pauses")
def test_a_stream_that_never_came_is_given_up_soon(connect: Connect, misbehaving: Misbehaving) -> None:
    """A wrong address or a missing model; one that was there is waited for longer."""
    client = connect(misbehaving.will(drop))

    with pytest.raises(ServiceUnreachable):
        next(iter(client.events()))
    assert len(misbehaving.seen) == 3
    misbehaving.will(problem(404, "not-found"))
    with pytest.raises(NotFound):
        next(iter(client.events()))
    assert len(misbehaving.seen) == 4
    misbehaving.will(stream("id: 1\nevent: head\ndata: {}\n\n"), drop)
    with pytest.raises(ServiceUnreachable):
        list(client.events())
    assert len(misbehaving.seen) == 4 + 1 + event_stream.MOST_FAILURES


def test_to_wait_polls_where_streams_do_not_pass(
    connect: Connect, misbehaving: Misbehaving, no_pauses: list[float]
) -> None:
    """After three streams in vain the session itself is asked for, at growing intervals."""
    refused = problem(503, "too-many-streams")
    acts = [act for _ in range(3) for act in (QUEUED, refused)]
    client = connect(misbehaving.will(*acts, *[RUNNING] * 4, DONE))

    done = client.sessions.wait(1)

    assert done.version == 2
    paths = [seen.path.removeprefix("/sessions/1") for seen in misbehaving.seen]
    assert paths == ["", "/events"] * 3 + [""] * 5
    assert no_pauses == sorted(no_pauses)
    assert no_pauses[-1] > 1


@pytest.mark.usefixtures("no_pauses")
def test_to_wait_goes_on_after_the_last_event(connect: Connect, misbehaving: Misbehaving) -> None:
    """And asks for the session once a stream says that it is over."""
    first = broken_stream("id: 4\nevent: running\ndata: {}\n\n")
    last = stream("id: 6\nevent: succeeded\ndata: {}\n\n")
    client = connect(misbehaving.will(QUEUED, first, RUNNING, last, DONE))

    assert client.sessions.wait(1, timeout=60).status == "succeeded"
    assert [seen.headers.get("last-event-id") for seen in misbehaving.seen] == [None, None, None, "4", None]


def test_to_wait_has_an_end_if_the_service_says_nothing(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the client's own timeout is."""
    monkeypatch.setattr(event_stream, "LAST_ANSWER", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = connect(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=10)
        began = time.monotonic()

        with pytest.raises(WaitTimeout):
            client.sessions.wait(1, timeout=0.1)
        assert time.monotonic() - began < 10


def test_a_stream_is_not_silent_for_longer_than_there_is_time() -> None:
    """It is opened for the time that is left, and again when that has become much less."""
    now = [100.0]
    waiting = Waiting(1, 10.0, clock=lambda: now[0])

    assert waiting.seconds_to_listen() == 10.0
    now[0] += 1.0
    assert not waiting.heard([])
    now[0] += 2.0
    assert waiting.heard([])
    assert waiting.seconds_to_listen() == 7.0
    assert waiting.heard([Event("succeeded", {})])
    now[0] += 7.0
    with pytest.raises(WaitTimeout):
        waiting.pause()
    assert Waiting(1, None).seconds_to_listen() == event_stream.SILENCE
