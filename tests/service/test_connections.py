"""A client that keeps the server waiting is closed, and neither its bytes nor its connections can use it up."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service import errors
from service.connection_limits import ConnectionLimits
from service.connection_protocol import MAX_HEAD
from tests.service.conftest import Server, hear_out
from tests.waiting import until

SECONDS = 10.0
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUICK = ConnectionLimits(connections=20, head_seconds=0.5, body_seconds=0.5, reader_seconds=0.5)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def app(release: threading.Event) -> FastAPI:
    app = FastAPI()
    errors.install(app)

    @app.get("/livez")
    async def livez() -> str:
        return "alive"

    @app.get("/work")
    def work() -> str:
        release.wait(SECONDS)
        return "done"

    @app.post("/read")
    async def read(request: Request) -> int:
        return len(await request.body())

    @app.get("/long")
    async def long() -> StreamingResponse:
        return StreamingResponse(iter(lambda: bytes(100_000), None))  # type: ignore[arg-type]

    return app


@contextmanager
def serving(app: Any, limits: ConnectionLimits = QUICK) -> Iterator[Server]:
    with Server(app, limits=limits).running() as server:
        yield server


def status(heard: bytes) -> int:
    return int(heard.split()[1])


def problem(heard: bytes) -> dict[str, Any]:
    head, _, body = heard.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    found: dict[str, Any] = json.loads(body)
    return found


# Time


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n\r\n", GET, GET + b"\r\n"],
    ids=["silent", "empty lines", "idle after an answer", "an empty line after it"],
)
def test_a_connection_without_a_request_is_closed(app: FastAPI, sent: bytes) -> None:
    """Also where empty lines, which are no request, keep coming."""
    with serving(app) as server:
        server.config.timeout_keep_alive = 10**6
        heard = server.converse(sent)

    assert heard.count(b"HTTP/1.1") == sent.count(b"GET")


def test_a_head_that_does_not_arrive_in_time_is_a_408(app: FastAPI) -> None:
    """However steadily it drips."""
    with serving(app) as server, server.connect() as connection:
        connection.sendall(GET[:10])
        dripping = threading.Thread(target=_drip, args=(connection,), daemon=True)
        dripping.start()
        heard = connection.recv(65536)

    assert problem(heard)["status"] == 408


def _drip(connection: socket.socket) -> None:
    try:
        while True:
            connection.sendall(b"a")
            threading.Event().wait(0.05)
    except OSError:
        return


def test_a_client_that_does_not_read_is_given_up(app: FastAPI) -> None:
    """An answer that nobody takes holds a connection for a while and no longer."""
    with serving(app) as server, server.connect() as connection:
        connection.sendall(GET.replace(b"livez", b"long"))
        until(lambda: len(server.server_state.connections) == 1, "the connection is there")
        until(lambda: not server.server_state.connections, "it is closed")


def test_a_body_that_nobody_reads_does_not_hold_its_connection(app: FastAPI) -> None:
    """The route answered without it, and the rest never comes."""
    with serving(app) as server:
        heard = server.converse(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")

    assert status(heard) == 200


# Bytes


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nX: " + b"a" * 10**6,
        b"GET /" + b"a" * 10**6,
        b"GET /livez HTTP/1.1\r\n" + b"X: a\r\n" * 200_000,
        b"GET /livez HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (MAX_HEAD + 1) + b"\r\n\r\n",
    ],
    ids=["one header", "the address", "many headers", "a whole head"],
)
def test_a_head_that_is_too_large_is_a_431(app: FastAPI, head: bytes) -> None:
    """It is refused while it arrives, and the client gets to hear it."""
    with serving(app) as server, server.connect() as connection:
        with suppress(OSError):  # it was told long ago
            connection.sendall(head)
        heard = connection.recv(65536)

    assert problem(heard)["status"] == 431


CHUNKED = b"POST /read HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"1\r\na\r\n" * 50_000 + b"0\r\n\r\n",
        b"1;" + b"x" * 200_000 + b"\r\na\r\n0\r\n\r\n",
        b"0\r\n" + b"Trailer: a\r\n" * 50_000 + b"\r\n",
    ],
    ids=["tiny chunks", "a chunk extension", "trailers"],
)
def test_chunks_that_are_mostly_framing_are_refused(app: FastAPI, body: bytes) -> None:
    """Bytes that no body limit counts."""
    with serving(app) as server, server.connect() as connection:
        with suppress(OSError):
            connection.sendall(CHUNKED + body)
        heard = connection.recv(65536)

    assert status(heard) == 400


def test_an_ordinary_chunked_body_arrives(app: FastAPI) -> None:
    """Chunks of a few hundred bytes, and a trailer, are what clients send."""
    body = b"".join(b"%x\r\n%b\r\n" % (200, bytes(200)) for _ in range(5000)) + b"0\r\nDigest: x\r\n\r\n"

    with serving(app, ConnectionLimits(20, 5, 5)) as server, server.connect() as connection:
        connection.sendall(CHUNKED + body)
        heard = connection.recv(65536)

    assert (status(heard), heard[-7:]) == (200, b"1000000")


def test_trailers_are_not_taken_for_headers() -> None:
    """What was not there when the caller was judged does not appear afterwards."""
    seen: list[list[tuple[bytes, bytes]]] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.append(scope["headers"])
        await send({"type": "http.response.start", "status": 204, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body"})

    with serving(application) as server:
        server.converse(CHUNKED + b"1\r\na\r\n0\r\nAuthorization: Bearer x\r\n\r\n")

    assert [name for name, _ in seen[0]] == [b"host", b"transfer-encoding"]


def test_what_is_not_http_is_a_400_with_a_problem(app: FastAPI) -> None:
    """As every other refusal."""
    with serving(app) as server:
        heard = server.converse(b"\x16\x03\x01 hello\r\n\r\n")

    assert problem(heard)["status"] == 400


def test_few_requests_may_be_sent_ahead(app: FastAPI, release: threading.Event) -> None:
    """Each that waits holds memory."""
    with serving(app) as server, server.connect() as connection:
        connection.sendall(GET.replace(b"livez", b"work") + GET * 10_000)
        heard = connection.recv(65536)
        release.set()

    assert status(heard) == 400


# Number


def test_connections_that_do_nothing_make_room_for_others(app: FastAPI) -> None:
    """A hundred silent ones, where twenty are allowed: who asks something is answered."""
    patient = ConnectionLimits(connections=20, head_seconds=60, body_seconds=60)
    with serving(app, patient) as server, ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(server.connect())
            heard = server.converse(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert status(heard) == 200
        open_now = len(server.server_state.connections)

    assert open_now <= 21


def test_while_all_connections_work_only_health_is_answered(app: FastAPI, release: threading.Event) -> None:
    """Others hear at once that they should come back."""
    with serving(app) as server, ExitStack() as stack:
        working = [stack.enter_context(server.connect()) for _ in range(20)]
        for connection in working:
            connection.sendall(GET.replace(b"livez", b"work"))
        until(lambda: sum(one.waiting_for() is None for one in server.server_state.connections) == 20, "all work")
        health = server.converse(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        other = server.converse(GET.replace(b"livez", b"work"))
        release.set()
        answers = {status(connection.recv(65536)) for connection in working}

    assert (status(health), status(other)) == (200, 503)
    assert b"retry-after: 5" in other.lower()
    assert answers == {200}


def test_few_open_files_mean_few_connections() -> None:
    """Where the process may open no more files, the bound is what it may open."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400));"
        "from service.connection_limits import allowed_connections; print(allowed_connections(1000))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert 20 < int(found.stdout.splitlines()[-1]) < 200


def test_a_refused_client_may_go_on_sending_and_still_hears_why(app: FastAPI) -> None:
    """A connection closed with unread bytes is reset, and the answer would be lost."""
    with serving(app) as server, server.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nX: " + b"a" * (2 * MAX_HEAD))
        until(lambda: any(one.waiting_for() == "close" for one in server.server_state.connections), "refused")
        connection.sendall(b"a" * 100_000)
        heard = hear_out(connection)

    assert problem(heard)["status"] == 431


def test_a_crowd_costs_few_connections(app: FastAPI) -> None:
    """As many make room as come, not all that wait."""
    patient = ConnectionLimits(connections=320, head_seconds=60, body_seconds=60)
    with serving(app, patient) as server, ExitStack() as stack:
        for _ in range(320):
            stack.enter_context(server.connect())
        until(lambda: len(server.server_state.connections) == 320, "all are there")
        for _ in range(30):
            stack.enter_context(server.connect())
        server.converse(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        left = len(server.server_state.connections)

    assert left >= 250


def test_a_refusal_behind_a_running_request_breaks_nothing(
    app: FastAPI, release: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """The running one is told that its client is gone; nothing is written behind the refusal."""
    with serving(app) as server, server.connect() as connection:
        connection.sendall(GET.replace(b"livez", b"work") + GET * 20)
        heard = connection.recv(65536)
        release.set()
        rest = hear_out(connection)

    assert problem(heard + rest)["status"] == 400
    assert not [line for line in caplog.records if "Exception in ASGI" in line.message]


@pytest.mark.parametrize("split", [0, 10, 160, 200])
def test_a_body_that_comes_with_an_offer_of_an_upgrade_is_read(app: FastAPI, split: int) -> None:
    """As curl --http2 and Java's client send them; what follows is a request of its own, and the body is none."""
    body = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
    message = b"POST /read HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    message += b"HTTP2-Settings: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with serving(app, ConnectionLimits(20, 1, 5)) as server, server.connect() as connection:
        connection.sendall(message[:split])
        until(lambda: len(server.server_state.connections) == 1, "it is there")
        connection.sendall(message[split:] + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        heard = hear_out(connection)

    assert heard.count(b"HTTP/1.1 200") == 2
    assert b"%d" % len(body) in heard


def test_connect_is_refused(app: FastAPI) -> None:
    """It is an upgrade too, and there is nothing to upgrade to."""
    with serving(app) as server:
        heard = server.converse(b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n")

    assert problem(heard)["status"] == 400


def test_refused_connections_are_bounded_too(app: FastAPI) -> None:
    """Strangers that send noise and stay are closed at once where there are many."""
    with serving(app) as server, ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(server.connect())
            connection.sendall(b"\x16\x03noise\r\n\r\n")
        heard = server.converse(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        open_now = len(server.server_state.connections)

    assert (status(heard), open_now < 80) == (200, True)


def test_a_client_that_leaves_behind_requests_sent_ahead_is_heard(app: FastAPI) -> None:
    """The request that runs is the one that is told."""
    seen = threading.Event()

    @app.get("/wait")
    async def wait(request: Request) -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)
        seen.set()

    with serving(app) as server:
        with server.connect() as connection:
            connection.sendall(GET.replace(b"livez", b"wait") + GET)
            until(lambda: any(one.pipeline for one in server.server_state.connections), "one waits behind it")

        assert seen.wait(SECONDS)
