"""A small HTTP server that does to each request what it was told to: answers, breaks off, or says nothing."""

import json
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

SECONDS = 10.0
Act = Callable[[socket.socket], None]


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Misbehaving:
    """Does one act for each request, and the last one again and again."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._acts: deque[Act] = deque()
        self.seen: list[Seen] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def will(self, *acts: Act) -> str:
        self._acts = deque(acts)
        return self.url

    def __enter__(self) -> "Misbehaving":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(SECONDS)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection:
                connection.settimeout(SECONDS)
                self.seen.append(_request(connection))
                act = self._acts.popleft() if len(self._acts) > 1 else self._acts[0]
                act(connection)


def _request(connection: socket.socket) -> Seen:
    read = b""
    while b"\r\n\r\n" not in read:
        read += connection.recv(65536)
    head, _, body = read.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    method, path, _ = first.split(" ")
    return Seen(method, path, headers, body)


def answer(status: int, content: Any = None, **headers: str) -> Act:
    """A whole answer, after which the connection is closed."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda connection: connection.sendall(_answer(status, body, headers))


def half(status: int, content: Any) -> Act:
    """An answer that breaks off in the middle."""
    body = json.dumps(content).encode()
    whole = _answer(status, body, {})
    return lambda connection: connection.sendall(whole[: -len(body) // 2])


def drop(_: socket.socket) -> None:
    """No answer at all."""


def problem(status: int, slug: str, **headers: str) -> Act:
    body = {"type": f"/problems/{slug}", "title": "No", "status": status, "detail": "no", "request_id": "r1"}
    return answer(status, body, **headers)


def stream(text: str) -> Act:
    """A part of a stream of events, which then ends as if it were complete."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return lambda connection: connection.sendall(head + text.encode())


def broken_stream(text: str) -> Act:
    """A part of a stream of events, which then breaks off."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return lambda connection: connection.sendall(head + f"{len(text.encode()):x}\r\n{text}\r\n".encode())


def _answer(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    named = {"Content-Length": str(len(body)), "Connection": "close"} | headers
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + body
