"""One line per request, whatever becomes of it, under an id that the caller knows too."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

from service import errors
from service.request_log import RequestLog, note

SECONDS = 10.0

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
def app() -> FastAPI:
    app = FastAPI()
    errors.install(app)
    app.add_middleware(RequestLog)

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


def test_an_exception_passes_and_leaves_its_line(log: Requests) -> None:
    """The log only watches."""

    async def broken(*_: Any) -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        asyncio.run(call(RequestLog(broken)))

    assert (log.closing["status"], log.closing["broken_by"]) == (500, "LookupError")


def test_a_request_that_is_cancelled_leaves_its_line(log: Requests) -> None:
    """A server that stops cancels what is under way: nobody got an answer."""

    async def endless(*_: Any) -> None:
        await asyncio.Event().wait()

    async def cancelled() -> None:
        task = asyncio.create_task(call(RequestLog(endless)))
        await asyncio.wait([task], timeout=0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())

    assert (log.closing["status"], log.closing["broken_by"]) == (499, "CancelledError")


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


def test_an_answer_to_nobody_is_a_499_too(log: Requests) -> None:
    """The client was gone before it began, whatever status it carries."""

    async def answer_late(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    asyncio.run(call(RequestLog(answer_late), {"type": "http.disconnect"}))

    assert log.closing["status"] == 499


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


def test_what_is_not_http_passes_untouched(log: Requests) -> None:
    """Start-up and shut-down are no requests."""
    passed = []

    async def application(scope: Any, *channels: Any) -> None:
        passed.append((scope["type"], channels))

    asyncio.run(RequestLog(application)({"type": "lifespan"}, "receive", "send"))  # type: ignore[arg-type]

    assert passed == [("lifespan", ("receive", "send"))]
    assert log == []


async def call(app: Any, message: Any = None) -> None:
    async def channel(*_: Any) -> Any:
        return message or {"type": "http.request", "body": b"", "more_body": False}

    await app({"type": "http", "method": "GET", "path": "/", "headers": []}, channel, channel)
