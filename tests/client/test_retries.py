"""When a request is sent again: against a server that drops, refuses and breaks off."""

import io
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from protoquad_client import (
    AnswerTimeout,
    Client,
    IdempotencyKeyInFlight,
    InternalError,
    NameTaken,
    NothingSent,
    Problem,
    QueueFull,
    ServiceUnreachable,
    UnexpectedAnswer,
)
from protoquad_client.retrying import backoff

from tests.client.misbehaving import Misbehaving, answer, drop, half, problem

NOBODY = {"key_id": None, "name": None, "scopes": ["predict"], "keys_required": False}
WELL = answer(200, NOBODY)
SESSION = {
    **{"id": 1, "status": "queued", "verdict": None, "reason": None, "error": None, "version": None, "attempt": 0},
    **{"progress": None, "cancel_requested": False, "created_at": "2026-01-01T00:00:00Z"},
    **{"started_at": None, "finished_at": None},
}
CLASS = {
    **{"id": 1, "name": "owl", "status": "provisional", "shots": 1, "since": 1, "served": True},
    "created_at": "2026-01-01T00:00:00Z",
}
TAUGHT = answer(202, {"class": CLASS, "session": SESSION, "version": 1, "outliers": []})
Connect = Callable[..., Any]


@pytest.mark.parametrize(
    "first",
    [
        drop,
        half(200, NOBODY),
        problem(503, "overloaded"),
        problem(500, "internal-error"),
        answer(429),
        answer(502, b""),
    ],
    ids=["drop", "half", "503", "500", "429", "502"],
)
def test_a_read_is_repeated(first: Any, connect: Connect, misbehaving: Misbehaving, pauses: list[float]) -> None:
    """Whatever went wrong, as long as time may mend it: after half a second, then after one."""
    client = connect(misbehaving.will(first, first, WELL))

    assert client.whoami().scopes == ("predict",)
    assert pauses == [0.5, 1.0]
    assert [seen.path for seen in misbehaving.seen] == ["/whoami"] * 3


def test_after_the_last_attempt_the_error_is_raised(
    connect: Connect, misbehaving: Misbehaving, pauses: list[float]
) -> None:
    """Of its type, with what the service said."""
    client = connect(misbehaving.will(problem(503, "overloaded", Retry_After="2")))

    with pytest.raises(QueueFull) as caught:
        client.whoami()
    assert (caught.value.status, caught.value.request_id, caught.value.retry_after) == (503, "r1", 2.0)
    assert len(misbehaving.seen) == 3
    assert pauses == [2.0, 2.0]


def test_retry_after_is_honoured_within_bounds(connect: Connect, misbehaving: Misbehaving, pauses: list[float]) -> None:
    """As seconds or as a date; a service that asks for an hour is not waited for that long."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    acts = [problem(503, "busy", Retry_After=text) for text in ("7", soon, "3600", "soon")]
    client = connect(misbehaving.will(*acts, WELL), retries=4)

    client.whoami()

    assert pauses == [7.0, pytest.approx(29, abs=2), 2.0, 4.0]


@pytest.mark.parametrize("slug", ["not-found", "name-taken", "invalid-request"])
def test_a_refusal_is_final(slug: str, connect: Connect, misbehaving: Misbehaving) -> None:
    """Sent again it would be refused again."""
    status = {"not-found": 404, "name-taken": 409, "invalid-request": 422}[slug]
    client = connect(misbehaving.will(problem(status, slug)))

    with pytest.raises(Problem) as caught:
        client.whoami()
    assert caught.value.type == f"/problems/{slug}"
    assert len(misbehaving.seen) == 1


@pytest.mark.parametrize("first", [drop, half(202, SESSION), problem(503, "busy"), answer(502, b"")])
def test_teaching_is_repeated_with_one_key(
    first: Any, connect: Connect, misbehaving: Misbehaving, pauses: list[float]
) -> None:
    """So the service does it once, even if it has done it already and the answer was lost."""
    client = connect(misbehaving.will(first, problem(409, "idempotency-key-in-flight", Retry_After="1"), TAUGHT))

    taught = client.classes.teach("owl", [b"image"])

    assert taught.class_.name == "owl"
    keys = {seen.headers["idempotency-key"] for seen in misbehaving.seen}
    assert (len(misbehaving.seen), len(keys)) == (3, 1)
    assert len({seen.body for seen in misbehaving.seen}) == 1
    assert pauses[1] == 1.0
    client.classes.teach("owl", [b"image"])
    client.classes.add_shots(1, [b"image"], idempotency_key="mine")
    assert misbehaving.seen[3].headers["idempotency-key"] not in keys
    assert misbehaving.seen[4].headers["idempotency-key"] == "mine"


@pytest.mark.parametrize("first", [drop, half(200, CLASS), problem(503, "busy"), problem(500, "internal-error")])
def test_another_write_is_not_repeated_once_it_was_sent(
    first: Any, connect: Connect, misbehaving: Misbehaving, pauses: list[float]
) -> None:
    """Nobody knows whether it was done."""
    client = connect(misbehaving.will(first, answer(200, CLASS)))

    with pytest.raises((ServiceUnreachable, Problem)) as caught:
        client.classes.rename(1, "eagle owl")
    assert not isinstance(caught.value, NothingSent)
    assert len(misbehaving.seen) == 1
    assert pauses == []


def test_a_write_is_repeated_if_nothing_was_sent(connect: Connect, pauses: list[float]) -> None:
    """No connection, so nobody has heard of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    client = connect(f"http://127.0.0.1:{port}")

    with pytest.raises(NothingSent, match=rf"127.0.0.1:{port} cannot be reached .*PROTOQUAD_URL"):
        client.classes.rename(1, "eagle owl")
    assert pauses == [0.5, 1.0]
    assert (client.alive(), client.ready()) == (False, False)
    assert pauses == [0.5, 1.0]


def test_no_answer_in_time_is_an_error_of_its_own(connect: Connect) -> None:
    """A server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = connect(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.05, retries=0)

        with pytest.raises(AnswerTimeout, match="allow more with `timeout`"):
            client.whoami()


def test_a_service_that_is_none_is_recognised(connect: Connect, misbehaving: Misbehaving) -> None:
    """Its pages, redirects and lists."""
    page = answer(200, b"<html>hello</html>")
    moved = answer(302, b"", Location="https://elsewhere/whoami")
    client = connect(misbehaving.will(page, answer(200, [1]), moved, answer(404, b"<h1>nginx</h1>")))

    with pytest.raises(UnexpectedAnswer, match="not JSON"):
        client.whoami()
    with pytest.raises(UnexpectedAnswer, match="WhoAmI is expected"):
        client.whoami()
    with pytest.raises(Problem, match="leads to https://elsewhere/whoami"):
        client.whoami()
    with pytest.raises(Problem, match=r"404 .*nginx"):
        client.whoami()


def test_pauses_double_up_to_eight_seconds_and_differ() -> None:
    """So that many clients do not come back at once."""
    assert [backoff(number, lambda: 0.0) for number in range(6)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert backoff(0, lambda: 1.0) == pytest.approx(0.375)
    assert len({backoff(3) for _ in range(20)}) > 1


def test_url_and_key_come_from_the_environment(misbehaving: Misbehaving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are given."""
    monkeypatch.setenv("PROTOQUAD_URL", misbehaving.will(WELL) + "/")
    monkeypatch.setenv("PROTOQUAD_KEY", "pq_secret\n")  # as a file may have it
    with Client() as client, Client(key="pq_other") as other:
        client.whoami()
        other.whoami()

    first, second = misbehaving.seen
    assert (first.path, first.headers["authorization"]) == ("/whoami", "Bearer pq_secret")
    assert second.headers["authorization"] == "Bearer pq_other"
    assert "pq_secret" not in repr(client) + repr(client.config)
    for url in ("localhost:8000", "http://127.0.0.1:port", "http://☃..com"):
        with pytest.raises(ValueError, match="no address of a service"):
            Client(url)


def test_what_is_asked_for_is_what_is_sent(connect: Connect, misbehaving: Misbehaving) -> None:
    """A model that cannot be one is not the default model, and a name that looks like a boolean stays as it is."""
    client = connect(misbehaving.will(answer(404)))

    for call in (client.model("..").classes.list().first, lambda: client.models.import_(io.BytesIO(b"x"), "True")):
        with pytest.raises(Problem):
            call()
    assert [seen.path for seen in misbehaving.seen] == ["/models/%2E%2E/classes?limit=500", "/models/import?name=True"]


def test_errors_have_the_class_of_their_type(connect: Connect, misbehaving: Misbehaving) -> None:
    """Also where the client is given no second attempt."""
    acts = [problem(409, "name-taken"), problem(409, "idempotency-key-in-flight"), problem(500, "internal-error")]
    client = connect(misbehaving.will(*acts, problem(418, "from-the-future")), retries=0)

    found = []
    for _ in range(4):
        with pytest.raises(Problem) as caught:
            client.whoami()
        found.append(type(caught.value))
    assert found == [NameTaken, IdempotencyKeyInFlight, InternalError, Problem]
