"""A body that is too large or too slow is refused once, early, and in a way that the client gets to hear."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from service import errors
from service.limits import BodyLimit, expect_images

CAP = 100_000
SECONDS = 10.0
CHUNKED = [(b"transfer-encoding", b"chunked")]

Serve = Callable[[Any], Any]


class Body(BaseModel):
    name: str


class Seen:
    """What became of a request in the handlers."""

    def __init__(self) -> None:
        self.bytes = 0
        self.reached = threading.Event()
        self.left = threading.Event()


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def app(seen: Seen) -> FastAPI:
    app = FastAPI()
    errors.install(app)

    @app.post("/read")
    async def read(request: Request) -> int:
        seen.reached.set()
        try:
            async for chunk in request.stream():
                seen.bytes += len(chunk)
        except ClientDisconnect:
            seen.left.set()
            raise
        return seen.bytes

    @app.post("/stubborn")
    async def stubborn(request: Request) -> str:
        try:
            await request.body()
        except Exception:
            return "never mind"
        return "read"

    @app.patch("/parsed")
    async def parsed(body: Body) -> str:
        return body.name

    @app.get("/events")
    async def events() -> StreamingResponse:
        async def endless() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"data: tick\n\n"
                    await asyncio.sleep(0.01)
            finally:
                seen.left.set()

        return StreamingResponse(endless(), media_type="text/event-stream")

    return app


def limited(app: FastAPI, *, seconds: float = SECONDS, linger: float = 0.2) -> FastAPI:
    app.add_middleware(BodyLimit, max_bytes=CAP, small_bytes=CAP, seconds=seconds, linger=linger)
    return app


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def answer(heard: bytes) -> tuple[int, dict[str, Any]]:
    """Status and body of the one answer in what was heard, which closes the connection."""
    top, _, content = heard.partition(b"\r\n\r\n")
    assert heard.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in top.lower()
    assert b"application/problem+json" in top
    return int(top.split()[1]), json.loads(content)


# Size


def test_an_announced_size_is_refused_before_anything_is_sent(app: FastAPI, seen: Seen, serve: Serve) -> None:
    """The headers are enough: no handler runs, and the client need not send the rest."""
    server = serve(limited(app))

    heard = server.converse(head("/read", f"Content-Length: {CAP + 1}"))

    status, body = answer(heard)
    assert (status, body["type"]) == (413, "/problems/body-too-large")
    assert "100000 bytes" in body["detail"]
    assert not seen.reached.is_set()


def test_a_stream_is_cut_off_where_it_passes_the_cap(app: FastAPI, seen: Seen, serve: Serve) -> None:
    """A chunked body announces nothing, so it is counted, and the answer comes before its end."""
    server = serve(limited(app))
    parts = [chunk(b"x" * 10_000) for _ in range(11)]

    heard = server.converse(head("/read", "Transfer-Encoding: chunked"), *parts)

    status, body = answer(heard)
    assert (status, body["type"]) == (413, "/problems/body-too-large")
    assert seen.reached.is_set()
    assert seen.bytes <= CAP


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_just_the_cap_is_read_whole(app: FastAPI, serve: Serve, chunked: bool) -> None:
    """The cap itself is allowed, announced or not."""
    server = serve(limited(app))
    content = iter([b"x" * CAP]) if chunked else b"x" * CAP

    response = httpx.post(f"{server.url}/read", content=content)

    assert (response.status_code, response.json()) == (200, CAP)


def test_a_client_that_is_still_sending_hears_the_answer(app: FastAPI, serve: Serve) -> None:
    """What still arrives is thrown away for a while: a reset connection would take the answer with it."""
    server = serve(limited(app, linger=SECONDS))
    size = 200 * CAP

    heard = server.converse(head("/read", f"Content-Length: {size}"), b"x" * size)

    assert answer(heard)[0] == 413


@pytest.mark.parametrize(("method", "path"), [("POST", "/stubborn"), ("PATCH", "/parsed")])
def test_a_handler_cannot_answer_over_the_refusal(app: FastAPI, serve: Serve, method: str, path: str) -> None:
    """Neither one that swallows every exception nor the framework, which makes a 400 of them."""
    server = serve(limited(app))
    headers = ("Transfer-Encoding: chunked", "Content-Type: application/json")

    heard = server.converse(head(path, *headers, method=method), chunk(b'{"name": "' + b"x" * CAP))

    assert answer(heard)[0] == 413


@pytest.mark.parametrize(
    ("lengths", "status"),
    [
        ([b"ten"], 400),
        ([b"-1"], 400),
        ([b"+1"], 400),
        ([b""], 400),
        ([b"1", b"2"], 400),
        (["١".encode()], 400),
        ([b"9" * 10_000], 413),
        ([b"0" * 10_000 + b"2"], 200),
        ([b"2", b"2"], 200),
    ],
)
def test_a_content_length_is_one_number(lengths: list[bytes], status: int) -> None:
    """Servers refuse most of these before us; behind one that does not, they are refused here."""
    sent = call(
        BodyLimit(echo, CAP, SECONDS, linger=0), [whole(b"hi")], headers=[(b"content-length", v) for v in lengths]
    )

    assert sent[0]["status"] == status
    assert sum(message["type"] == "http.response.start" for message in sent) == 1


# Time


def test_a_body_that_does_not_arrive_in_time_is_a_408(app: FastAPI, seen: Seen, serve: Serve) -> None:
    """A client that sends a byte now and then holds a connection no longer than one that works."""
    server = serve(limited(app, seconds=0.2))

    heard = server.converse(head("/read", "Content-Length: 10"), b"slow")

    status, body = answer(heard)
    assert (status, body["type"]) == (408, "/problems/body-too-slow")
    assert "0.2 seconds" in body["detail"]
    assert seen.bytes == 4


def test_an_answer_may_take_longer_than_the_body(app: FastAPI, seen: Seen, serve: Serve) -> None:
    """The limit is on what the client sends: a stream of events goes on until its reader leaves."""
    server = serve(limited(app, seconds=0.05))

    with server.connect() as connection:
        connection.sendall(head("/events", method="GET"))
        heard = b""
        while heard.count(b"tick") < 20:
            heard += connection.recv(65536)

    assert b"408" not in heard
    assert seen.left.wait(SECONDS)


# Connections


def test_a_client_that_leaves_amid_its_body_is_noticed(app: FastAPI, seen: Seen, serve: Serve) -> None:
    """The handler hears of it, so that it can stop."""
    server = serve(limited(app))

    with server.connect() as connection:
        connection.sendall(head("/read", "Content-Length: 10") + b"half")
        assert seen.reached.wait(SECONDS)
        connection.shutdown(socket.SHUT_RDWR)

    assert seen.left.wait(SECONDS)


def test_a_connection_serves_on_after_a_body_that_fits(app: FastAPI, serve: Serve) -> None:
    """Only a refusal closes the connection."""
    server = serve(limited(app))

    with httpx.Client(base_url=server.url) as client:
        answers = [client.post("/read", content=b"12345") for _ in range(2)]

    assert [response.json() for response in answers] == [5, 10]
    assert all("connection" not in response.headers for response in answers)


def test_a_flood_behind_a_begun_answer_ends_it() -> None:
    """Once the answer is under way it cannot be replaced: the reader is told that the client is gone."""

    async def answer_first(_: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        heard = await receive()
        await send({"type": "http.response.body", "body": heard["type"].encode()})

    sent = call(
        BodyLimit(answer_first, 5, SECONDS, linger=0),
        [{"type": "http.request", "body": b"sixsix", "more_body": True}],
        headers=CHUNKED,
    )

    assert [message.get("status", message.get("body")) for message in sent] == [200, b"http.disconnect", b""]


def test_a_begun_answer_waits_for_the_body_as_long_as_it_takes() -> None:
    """A late body is no reason to break off an answer that is already on its way."""
    listening = asyncio.Event()

    async def answer_first(_: Any, receive: Any, send: Any) -> None:
        waiting = asyncio.create_task(receive())
        await asyncio.wait_for(listening.wait(), SECONDS)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        heard = await waiting
        await send({"type": "http.response.body", "body": heard["body"]})

    async def not_in_time() -> None:
        listening.set()
        await asyncio.wait_for(asyncio.Event().wait(), SECONDS)

    sent = call(BodyLimit(answer_first, CAP, seconds=0.05), [not_in_time, whole(b"late")], headers=CHUNKED)

    assert [message.get("status", message.get("body")) for message in sent] == [200, b"late"]


def test_a_handler_may_wait_for_its_client_to_leave() -> None:
    """Once the body is whole its time limit is over, also where the answer has not begun."""
    release = asyncio.Event()

    async def wait_first(_: Any, receive: Any, send: Any) -> None:
        await receive()
        heard = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": heard["type"].encode()})

    async def leave_late() -> dict[str, Any]:
        asyncio.get_running_loop().call_later(0.1, release.set)
        await asyncio.wait_for(release.wait(), SECONDS)
        return {"type": "http.disconnect"}

    sent = call(BodyLimit(wait_first, CAP, seconds=0.01), [whole(b"hi"), leave_late])

    assert [message.get("status", message.get("body")) for message in sent] == [200, b"http.disconnect"]


def test_an_error_of_the_application_passes() -> None:
    """The limit hides nothing but its own interruption."""

    async def broken(*_: Any) -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        call(BodyLimit(broken, CAP, SECONDS), [whole(b"")])


def test_what_is_not_http_passes_untouched() -> None:
    """Start-up and shut-down have no body."""
    passed = []

    async def application(scope: Any, *channels: Any) -> None:
        passed.append((scope["type"], channels))

    asyncio.run(BodyLimit(application, CAP, SECONDS)({"type": "lifespan"}, "receive", "send"))  # type: ignore[arg-type]

    assert passed == [("lifespan", ("receive", "send"))]


async def echo(_: Any, receive: Any, send: Any) -> None:
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def whole(body: bytes) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": False}


def call(app: Any, messages: list[Any], headers: list[tuple[bytes, bytes]] | None = None) -> list[Any]:
    """What an application sends when these messages reach it."""
    sent: list[Any] = []
    waiting = iter(messages)

    async def receive() -> Any:
        message = next(waiting, {"type": "http.disconnect"})
        return await message() if callable(message) else message

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers or []}
    asyncio.run(app(scope, receive, send))
    return sent


# Small bodies, and all bodies together


def test_a_route_gets_a_small_body_unless_it_asks_for_images(serve: Serve) -> None:
    """Where no image travels nothing large is read, whether its size is announced or not."""
    app = FastAPI()
    errors.install(app)

    @app.post("/small")
    async def small(request: Request) -> int:
        return len(await request.body())

    @app.post("/images")
    async def images(request: Request) -> int:
        expect_images(request)
        return len(await request.body())

    app.add_middleware(BodyLimit, max_bytes=CAP, seconds=SECONDS, small_bytes=1000)
    url = serve(app).url

    answers = {
        (path, size, chunked): httpx.post(url + path, content=iter([bytes(size)]) if chunked else bytes(size))
        for path in ("/small", "/images")
        for size in (1000, 1001)
        for chunked in (False, True)
    }

    assert {answer.status_code for (path, size, _), answer in answers.items() if path == "/small" and size > 1000} == {
        413
    }
    assert {answer.text for (path, size, _), answer in answers.items() if path == "/images" and size > 1000} == {"1001"}
    assert {answer.text for (_, size, _), answer in answers.items() if size == 1000} == {"1000"}


@pytest.mark.parametrize("chunked", [False, True])
def test_all_bodies_together_are_bounded(serve: Serve, chunked: bool) -> None:
    """The one that finds no room hears so at once, and finds some when the others are answered."""
    app, release = FastAPI(), threading.Event()
    errors.install(app)
    here = threading.Semaphore(0)

    @app.post("/images")
    async def images(request: Request) -> int:
        expect_images(request)
        size = len(await request.body())
        here.release()
        while not release.is_set():
            await asyncio.sleep(0.01)
        return size

    app.add_middleware(BodyLimit, max_bytes=CAP, seconds=SECONDS, all_bytes=2 * CAP + 1)
    url = serve(app).url + "/images"

    def post() -> httpx.Response:
        return httpx.post(url, content=iter([bytes(CAP // 2)] * 2) if chunked else bytes(CAP), timeout=SECONDS)

    with ThreadPoolExecutor(2) as pool:
        first = [pool.submit(post) for _ in range(2)]
        assert all(here.acquire(timeout=SECONDS) for _ in first)
        refused = post()
        release.set()
        answered = [one.result().status_code for one in first]
    later = post()

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert refused.headers["content-type"] == "application/problem+json"
    assert [*answered, later.status_code] == [200, 200, 200]


def test_an_answer_before_the_body_is_whole_reaches_a_client_that_still_sends(serve: Serve) -> None:
    """It is given at once, what still arrives is thrown away for a moment, and the connection is closed."""
    app = FastAPI()
    errors.install(app)

    @app.post("/refused")
    async def refused() -> None:
        raise errors.Problem(401, "No", "no", slug="unauthorized")

    server = serve(limited(app, linger=2.0))
    with server.connect() as connection:
        connection.sendall(head("/refused", f"Content-Length: {CAP}"))
        first = connection.recv(65536)
        connection.sendall(bytes(CAP))
        rest = b"".join(iter(lambda: connection.recv(65536), b""))

    assert answer(first + rest)[0] == 401
