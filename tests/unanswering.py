"""Addresses where nobody answers, each in its own way."""

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.redis_server import RedisServer, free_port

WAYS = ("down", "packets dropped", "paused", "wrong password")
PASSWORD = "k33p-me-out-of-logs"


@contextmanager
def unanswering(way: str, folder: Path) -> Iterator[str]:
    """The URL of a Redis that is of no use, with a password that must not be told."""
    with ExitStack() as stack:
        if way == "down":
            port = free_port()
        elif way == "packets dropped":
            port = stack.enter_context(_dropping())
        else:
            port = stack.enter_context(_refusing(way, folder))
        yield f"redis://:{PASSWORD}@127.0.0.1:{port}/0"


@contextmanager
def _dropping() -> Iterator[int]:
    """A socket whose backlog is full: the kernel drops whatever asks for a connection, and says nothing."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextmanager
def _refusing(way: str, folder: Path) -> Iterator[int]:
    server = RedisServer(folder)
    server.start()
    if way == "paused":
        server.send(signal.SIGSTOP)  # connections come about, questions stay without an answer
    else:
        with server.client() as client:
            client.config_set("requirepass", "another")
    yield server.port
    server.kill()
