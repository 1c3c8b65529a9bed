"""Ways to ask an application: within the process, and over a real socket where timing and connections matter."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
import structlog
import uvicorn
from starlette.types import ASGIApp

SECONDS = 10.0  # bound of every wait: reached only by a test that fails

Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="session")
def ask() -> Ask:
    """One request within the process; an exception that leaves the application fails the test."""

    def send(app: ASGIApp, method: str, path: str, *, raises: bool = True, **options: Any) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
                return await client.request(method, path, **options)

        return asyncio.run(request())

    return send


class Server(uvicorn.Server):
    """A server in a thread, on a port of its own."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(uvicorn.Config(app, lifespan="off", ws="none", log_config=None, timeout_graceful_shutdown=5))
        self.ready = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def running(self) -> Iterator["Server"]:
        thread = threading.Thread(target=self.run, args=([self.listener],), daemon=True)
        thread.start()
        assert self.ready.wait(SECONDS), "the server did not start"
        yield self
        self.should_exit = True
        thread.join(SECONDS)
        self.listener.close()
        assert not thread.is_alive(), "the server did not stop"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), SECONDS)

    def converse(self, *messages: bytes) -> bytes:
        """Say these bytes, then hear the server out until it closes the connection."""
        with self.connect() as connection:
            for message in messages:
                connection.sendall(message)
            return hear_out(connection)


def hear_out(connection: socket.socket) -> bytes:
    heard = b""
    while chunk := connection.recv(65536):
        heard += chunk
    return heard


@pytest.fixture
def serve() -> Iterator[Callable[[ASGIApp], Server]]:
    """Starts applications on real sockets and stops them after the test."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(Server(app).running())


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """What is logged, with all that the context adds."""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as captured:
        yield captured
