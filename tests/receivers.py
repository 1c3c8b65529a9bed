"""Receivers of webhooks on this machine: some that answer, and some that do not behave."""

import base64
import hashlib
import hmac
import json
import queue
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SECONDS = 30.0  # bound of every wait: reached only by a test that fails


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def is_signed_with(self, secret: str) -> bool:
        """As the specification says, written a second time."""
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        key = base64.b64decode(secret.split("_", 1)[1])
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return hmac.compare_digest(expected, self.headers["webhook-signature"])


@dataclass
class Receiver:
    """Answers as it is told to, with 204 unless it is told anything."""

    url: str
    port: int
    received: "queue.Queue[Received]" = field(default_factory=queue.Queue)
    statuses: list[int] = field(default_factory=list)  # of the next answers
    left: threading.Event = field(default_factory=threading.Event)  # a hostile one sees that the caller has left

    def next(self) -> Received:
        return self.received.get(timeout=SECONDS)


@contextmanager
def receiver(*statuses: int, tls: Path | None = None) -> Iterator[Receiver]:
    """On a free port; with `tls`, a file that has a certificate and its key."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            own.received.put(Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            status = own.statuses.pop(0) if own.statuses else 204
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", f"{own.url}/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    port = server.server_address[1]
    own = Receiver(f"{'https' if tls else 'http'}://127.0.0.1:{port}", port, statuses=list(statuses))
    with _serving(server):
        yield own


def _silent(connection: Any, _stop: threading.Event) -> None:
    """Reads, and says nothing until the other side gives up."""
    while connection.recv(65536):
        pass


def _endless_head(connection: Any, stop: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 204 No Content\r\n")
    while not stop.is_set():
        connection.sendall(b"X-More: " + b"x" * 60_000 + b"\r\n")


def _slow_head(connection: Any, stop: threading.Event) -> None:
    """A byte now and then: no single wait is long."""
    for byte in b"HTTP/1.1 204 No Content\r\n" + b"X-More: " + b"x" * 10_000:
        if stop.wait(0.02):
            return
        connection.sendall(bytes([byte]))


def _endless_body(connection: Any, stop: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not stop.is_set():
        connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def _no_http(connection: Any, _stop: threading.Event) -> None:
    connection.sendall(b"220 mail.example.org ESMTP\r\n")


HOSTILE: dict[str, Callable[[Any, threading.Event], None]] = {
    "silent": _silent,
    "endless head": _endless_head,
    "slow head": _slow_head,
    "endless body": _endless_body,
    "no HTTP": _no_http,
}


@contextmanager
def hostile_receiver(way: str) -> Iterator[Receiver]:
    """What comes back is none that a delivery should wait for."""
    stop = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            own.received.put(Received(way, {}, self.request.recv(65536)))
            with suppress(OSError):  # the other side has left, as it should
                HOSTILE[way](self.request, stop)
            own.left.set()

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    own = Receiver(f"http://127.0.0.1:{server.server_address[1]}", server.server_address[1])
    with _serving(server):
        yield own
        stop.set()


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield
    server.shutdown()
    server.server_close()
    thread.join(SECONDS)


def is_recent(timestamp: str) -> bool:
    return abs(time.time() - int(timestamp)) < 60
