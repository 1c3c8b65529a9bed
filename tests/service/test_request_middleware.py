"""Every request has an id that the caller knows, one line in the log and one measurement, whatever becomes of it."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from starlette.staticfiles import StaticFiles

from service import errors
from service.metrics import Metrics
from service.request_middleware import RequestMiddleware, note
from tests.service.scraping import scrape, value

SECONDS = 10.0
DURATION = "protoquad_http_request_duration_seconds"

Ask = Callable[..., Any]


class Requests(list[Any]):
    """The log, where a test can wait for a request's closing line."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = threading.Event()

    def append(self, line: Any) -> None:
        super().append(line)
        if line["event"] == "request":
            self.closed.set()

    @property
    def closing(self) -> Any:
        """The one closing line."""
        assert self.closed.wait(SECONDS)
        [line] = [line for line in self if line["event"] == "request"]
        return line


@pytest.fixture
def log() -> Any:
    """What is logged, from whichever thread, with all that the context adds."""
    before = structlog.get_config()
    captured = Requests()

    def keep(_: Any, level: str, line: Any) -> Any:
        captured.append(line | {"level": level})
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    yield captured
    structlog.configure(**before)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def app(metrics: Metrics, tmp_path: Path) -> FastAPI:
    app, router = FastAPI(), APIRouter()
    errors.install(app)
    app.add_middleware(RequestMiddleware, metrics=metrics)

    @router.get("/classes/{class_id}")
    async def classes(class_id: int) -> None: ...

    app.include_router(router)  # as the service does: at the root and under each model
    app.include_router(router, prefix="/models/{model}")
    app.mount("/static", StaticFiles(directory=tmp_path))

    @app.post("/echo/{name}")
    async def echo(name: str, request: Request) -> int:
        structlog.get_logger().info("handled", name=name)
        return len(await request.body())

    @app.get("/livez")
    @app.get("/readyz")
    @app.get("/metrics")
    async def probe() -> None: ...

    @app.get("/teapot")
    async def teapot() -> None:
        raise HTTPException(418)

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("broken")

    @app.get("/async")
    async def in_the_loop() -> None:
        note(model="birds", version=3)

    @app.get("/sync")
    def in_a_thread() -> None:
        note(model="birds", version=3)

    return app


def test_a_request_is_one_line(app: FastAPI, ask: Ask, log: Requests) -> None:
    """Method, path, status, time and size; the query stays out, as it may hold what is nobody's business."""
    ask(app, "POST", "/echo/a?secret=1234", content=b"12345")

    line = log.closing
    assert {name: line[name] for name in ("method", "path", "status", "bytes_in", "level")} == {
        "method": "POST",
        "path": "/echo/a",
        "status": 200,
        "bytes_in": 5,
        "level": "info",
    }
    assert 0 < line["milliseconds"] < SECONDS * 1000
    assert "1234" not in str(log).replace("12345", "")


@pytest.mark.parametrize("given", ["abc", "A-1_b.c", "x" * 100])
def test_the_callers_id_is_kept(app: FastAPI, ask: Ask, log: Requests, given: str) -> None:
    """It comes back in the answer and is in every line of the request."""
    response = ask(app, "POST", "/echo/a", headers={"X-Request-ID": given})

    assert response.headers["x-request-id"] == given
    assert {line["event"]: line["request_id"] for line in log} == {"handled": given, "request": given}


@pytest.mark.parametrize("given", ["", "x" * 101, "a b", "a;b", "é", "a\nb"])
def test_an_id_that_could_do_harm_is_replaced(app: FastAPI, ask: Ask, log: Requests, given: str) -> None:
    """Too long for a column, or with characters that break a line of the log."""
    response = ask(app, "POST", "/echo/a", headers={"X-Request-ID": given.encode("latin-1")})

    own = response.headers["x-request-id"]
    assert own != given
    assert 0 < len(own) <= 100
    assert log.closing["request_id"] == own


def test_requests_have_ids_of_their_own(app: FastAPI, ask: Ask, log: Requests) -> None:
    """Nothing of one request is said of the next."""
    ask(app, "GET", "/async")
    ask(app, "GET", "/livez")

    first, second = log
    assert first["request_id"] != second["request_id"]
    assert "model" not in second


def test_what_was_bound_before_a_request_is_not_said_of_it(app: FastAPI, ask: Ask, log: Requests) -> None:
    """A connection's context may still hold what an earlier request left in it."""
    with structlog.contextvars.bound_contextvars(stale="yes"):
        ask(app, "POST", "/echo/a")

    assert [line["event"] for line in log if "stale" not in line] == ["handled", "request"]


@pytest.mark.parametrize("path", ["/async", "/sync"])
def test_what_a_handler_notes_is_in_the_closing_line(app: FastAPI, ask: Ask, log: Requests, path: str) -> None:
    """Whether it runs on the event loop or in a thread, which has a copy of the context."""
    ask(app, "GET", path)

    assert (log.closing["model"], log.closing["version"]) == ("birds", 3)


def test_a_note_outside_of_a_request_is_only_bound() -> None:
    """Code that notes something can run in a worker too."""
    note(model="birds")

    assert structlog.contextvars.get_contextvars() == {"model": "birds"}
    structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_probes_are_logged_for_debugging_only(app: FastAPI, ask: Ask, log: Requests, path: str) -> None:
    """Machines ask them every few seconds."""
    ask(app, "GET", path)

    assert log.closing["level"] == "debug"


@pytest.mark.parametrize(
    ("path", "status", "level"), [("/nowhere", 404, "info"), ("/teapot", 418, "info"), ("/broken", 500, "warning")]
)
def test_a_refusal_is_logged_with_its_status(
    app: FastAPI, ask: Ask, log: Requests, path: str, status: int, level: str
) -> None:
    """A fault of ours louder than one of the caller's."""
    response = ask(app, "GET", path)

    assert (log.closing["status"], log.closing["level"]) == (status, level)
    assert response.headers["x-request-id"] == log.closing["request_id"]


def test_an_exception_passes_and_leaves_its_line(log: Requests, metrics: Metrics) -> None:
    """The log only watches."""

    async def broken(*_: Any) -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        asyncio.run(call(RequestMiddleware(broken, metrics)))

    assert (log.closing["status"], log.closing["broken_by"]) == (500, "LookupError")
    assert measured(metrics) == {("GET", "unmatched", "500")}


def test_a_request_that_is_cancelled_leaves_its_line(log: Requests, metrics: Metrics) -> None:
    """A server that stops cancels what is under way: nobody got an answer."""

    async def endless(*_: Any) -> None:
        await asyncio.Event().wait()

    async def cancelled() -> None:
        task = asyncio.create_task(call(RequestMiddleware(endless, metrics)))
        await asyncio.wait([task], timeout=0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())

    assert (log.closing["status"], log.closing["broken_by"]) == (499, "CancelledError")
    assert measured(metrics) == {("GET", "unmatched", "499")}


def test_a_client_that_leaves_before_the_answer_is_a_499(
    app: FastAPI, log: Requests, serve: Callable[..., Any]
) -> None:
    """Neither a success nor a fault."""
    server = serve(app)

    with server.connect() as connection:
        connection.sendall(b"POST /echo/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)

    assert (log.closing["status"], log.closing["bytes_in"], log.closing["level"]) == (499, 4, "info")


def test_an_answer_to_nobody_is_a_499_too(log: Requests, metrics: Metrics) -> None:
    """The client was gone before it began, whatever status it carries."""

    async def answer_late(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    asyncio.run(call(RequestMiddleware(answer_late, metrics), {"type": "http.disconnect"}))

    assert log.closing["status"] == 499
    assert measured(metrics) == {("GET", "unmatched", "499")}


def test_a_stream_of_events_is_logged_when_its_reader_leaves(
    app: FastAPI, log: Requests, serve: Callable[..., Any]
) -> None:
    """With the status that it began with, and not held up by the log."""

    @app.get("/events")
    async def events() -> StreamingResponse:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"data: tick\n\n"
                await asyncio.sleep(0.01)

        return StreamingResponse(endless(), media_type="text/event-stream")

    server = serve(app)
    with server.connect() as connection:
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: abc\r\n\r\n")
        heard = b""
        while b"tick" not in heard:
            heard += connection.recv(65536)
        open_yet = not log.closed.is_set()

    assert open_yet
    assert b"x-request-id: abc" in heard.lower()
    assert log.closing["status"] == 200


def test_what_is_not_http_passes_untouched(log: Requests, metrics: Metrics) -> None:
    """Start-up and shut-down are no requests."""
    passed = []

    async def application(scope: Any, *channels: Any) -> None:
        passed.append((scope["type"], channels))

    asyncio.run(RequestMiddleware(application, metrics)({"type": "lifespan"}, "receive", "send"))  # type: ignore[arg-type]

    assert passed == [("lifespan", ("receive", "send"))]
    assert (log, measured(metrics)) == ([], set())


# Measurements


@pytest.mark.parametrize(
    ("method", "path", "labels"),
    [
        ("GET", "/classes/7", ("GET", "/classes/{class_id}", "200")),
        ("GET", "/classes/x", ("GET", "/classes/{class_id}", "422")),
        ("PUT", "/classes/7", ("PUT", "/classes/{class_id}", "405")),
        ("GET", "/models/birds/classes/7", ("GET", "/models/{model}/classes/{class_id}", "200")),
        ("GET", "/broken", ("GET", "/broken", "500")),
        ("GET", "/docs", ("GET", "/docs", "200")),
        ("GET", "/no/such/thing", ("GET", "unmatched", "404")),
        ("GET", "/static/made-up", ("GET", "unmatched", "404")),
        ("BREW", "/classes/7", ("other", "/classes/{class_id}", "405")),
    ],
)
def test_a_request_is_measured_under_its_routes_template(
    app: FastAPI,
    metrics: Metrics,
    ask: Ask,
    method: str,
    path: str,
    labels: tuple[str, str, str],
) -> None:
    """Nothing that a caller makes up becomes a label: each would be a series that is kept for ever."""
    ask(app, method, path)

    assert measured(metrics) == {labels}


def test_durations_are_counted_and_summed(app: FastAPI, metrics: Metrics, ask: Ask) -> None:
    """As a histogram, so that a quantile can be read off it."""
    for class_id in range(3):
        ask(app, "GET", f"/classes/{class_id}")

    labels = {"method": "GET", "route": "/classes/{class_id}", "status": "200"}
    assert value(metrics, f"{DURATION}_count", **labels) == 3
    assert value(metrics, f"{DURATION}_bucket", le="+Inf", **labels) == 3
    assert 0 < (value(metrics, f"{DURATION}_sum", **labels) or 0) < SECONDS


@pytest.mark.parametrize(("kind", "whole"), [("text/event-stream", False), ("text/plain", True)])
def test_a_stream_of_events_is_measured_to_its_beginning(
    app: FastAPI, metrics: Metrics, ask: Ask, kind: str, whole: bool
) -> None:
    """How long a reader listens is no latency; any other answer is measured to its end."""
    pause = threading.Event()

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"one"
            pause.wait(0.2)
            yield b"two"

        return StreamingResponse(parts(), media_type=kind)

    ask(app, "GET", "/stream")

    seconds = value(metrics, f"{DURATION}_sum", method="GET", route="/stream", status="200")
    assert seconds is not None
    assert (seconds >= 0.2) == whole


def measured(metrics: Metrics) -> set[tuple[str, str, str]]:
    """Method, route and status of what was measured."""
    counted = [dict(labels) for name, labels in scrape(metrics) if name == f"{DURATION}_count"]
    return {(labels["method"], labels["route"], labels["status"]) for labels in counted}


async def call(app: Any, message: Any = None) -> None:
    async def channel(*_: Any) -> Any:
        return message or {"type": "http.request", "body": b"", "more_body": False}

    await app({"type": "http", "method": "GET", "path": "/", "headers": []}, channel, channel)
