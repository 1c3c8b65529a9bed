"""Nobody works for a caller that has left, and nobody waits for ever."""

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from tests.service.conftest import shots_of
from tests.waiting import until

pytestmark = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
Start = Callable[..., Any]


def leave(request: httpx.Request, when: Callable[[], Any]) -> None:
    """Send a request, and close the connection once this is so."""
    url = request.url
    head = f"{request.method} {url.raw_path.decode()} HTTP/1.1\r\n".encode()
    head += b"".join(b"%b: %b\r\n" % pair for pair in request.headers.raw)
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(head + b"\r\n" + request.read())
        until(when, "the request is under way")


def closing(lines: list[Any], path: str) -> list[dict[str, Any]]:
    return [line for line in lines if line.get("event") == "request" and line.get("path") == path]


def test_a_prediction_that_nobody_waits_for_is_taken_back(start: Start, lines: list[Any]) -> None:
    """It leaves the queue as soon as its caller is gone, and is logged as 499."""
    service = start()
    service.learner().taught("red", "green")
    files = shots_of("red", range(8), field="images")
    request = service.http.build_request("POST", "/predict", files=files)
    predictor = service.context.predictor

    with service.held_up():
        leave(request, lambda: predictor.queued >= 8)
        until(lambda: predictor.queued == 0, "the queue is empty")

    until(lambda: closing(lines, "/predict"), "it is logged")
    assert [line["status"] for line in closing(lines, "/predict")] == [499]


def test_a_class_whose_caller_left_before_it_was_seen_is_not_taught(start: Start, lines: list[Any]) -> None:
    """What was written would be news to the caller; until then nothing is."""
    service = start()
    learner = service.learner()
    learner.taught("red")
    request = service.http.build_request("POST", "/classes", data={"name": "blue"}, files=shots_of("blue"))

    with service.held_up():
        leave(request, lambda: service.context.predictor.queued)
        until(lambda: len(closing(lines, "/classes")) == 2, "it is logged")

    assert closing(lines, "/classes")[-1]["status"] == 499
    assert list(learner.classes()) == ["red"]


def test_a_class_whose_caller_left_while_it_was_written_is_there_whole(
    start: Start, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that has begun comes to its end, and is served."""
    service = start()
    learner = service.learner()
    changes = service.context.teacher.teaching
    writing, go_on, teach = threading.Event(), threading.Event(), changes.teach

    def slow(*arguments: Any) -> Any:
        writing.set()
        assert go_on.wait(60)
        return teach(*arguments)

    monkeypatch.setattr(changes, "teach", slow)
    request = service.http.build_request("POST", "/classes", data={"name": "red"}, files=shots_of("red"))
    leave(request, writing.is_set)
    go_on.set()
    until(lambda: closing(lines, "/classes"), "it is logged")

    assert learner.labels("red") == ["red"]


def test_an_answer_that_takes_too_long_is_a_503(start: Start) -> None:
    """With the time after which to try again; the images leave the queue."""
    start().learner().taught("red")  # however long a busy machine takes
    service = start(answer_seconds=0.2)

    with service.held_up():
        refused = service.learner().post("/predict", files=shots_of("red", field="images"))
        until(lambda: service.context.predictor.queued == 0, "the queue is empty")

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert refused.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("size", [1_000, 200_000, 500_000, 1_000_000, 3_000_000])
def test_leaving_is_heard_whatever_the_size_of_the_body(start: Start, size: int) -> None:
    """A server stops reading while a large body waits; afterwards it must look at the connection again."""
    service = start()
    service.learner().taught("red")
    image = shots_of("red", range(1))[0][1][1]
    files = [("images", ("a.png", image + bytes(size), "image/png"))]
    request = service.http.build_request("POST", "/predict", files=files)

    with service.held_up():
        leave(request, lambda: service.context.predictor.queued)
        until(lambda: service.context.predictor.queued == 0, "the queue is empty")


def test_callers_that_leave_take_no_more_threads_than_there_may_be(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leaves while a thread works for it leaves that thread counted."""
    service = start()
    busy, go_on = [], threading.Event()

    def slow(*_: Any) -> None:
        busy.append(threading.get_ident())
        go_on.wait(60)

    monkeypatch.setattr(service.context.teacher.teaching, "require_free", slow)
    request = service.http.build_request("POST", "/classes", data={"name": "red"}, files=shots_of("red"))
    for wanted in [*range(1, 41), *[40] * 20]:
        leave(request, partial(lambda wanted: len(busy) >= wanted, wanted))
    at_most = len(busy)
    go_on.set()

    assert at_most <= 40
