"""Connections, each with bounds: bytes of a request's head, time in which the client has to act, and their number.

uvicorn waits for a client as long as it likes and takes as many connections as come. This protocol closes those that
keep it waiting. Where there are too many, the ones that have kept it waiting longest make room; while every connection
is at work, a further one is answered 503, unless it asks for the service's health.
"""

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import structlog
from httptools import HttpRequestParser
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.cancellation import WHEN_GONE
from service.errors import Problem
from service.request_turns import RequestTurns

HEALTH = frozenset({"/livez", "/readyz"})
MAX_HEAD = 32 * 1024  # bytes: a key, some cookies and a few proxies' headers take a tenth of it
MAX_PIPELINED = 8  # requests sent ahead on one connection
ACCEPTED_PER_TURN = 64  # connections, in each turn of the event loop
# Descriptors for listening, for two turns of connections that came while others close, and for the database and files.
# Without a spare one libuv throws away every connection that waits to be accepted.
SPARE_FILES = 4 * ACCEPTED_PER_TURN
_OF_UPGRADES = frozenset({b"upgrade", b"connection", b"http2-settings"})
RESERVED = 16  # connections beyond the bound, for health checks
SECONDS_BETWEEN_SWEEPS = 0.5
SECONDS_BETWEEN_LOGS = 10.0
SECONDS_TO_CLOSE = 2.0  # for a refused client to read its answer

Waiting = Literal["head", "body", "reader", "close"]
"""What a connection waits for its client to do: send a request, send its body, read the answer, hang up."""

_log = structlog.get_logger("protoquad.connections")


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections there may be, and how long each may wait for its client."""

    connections: int
    head_seconds: float
    body_seconds: float
    reader_seconds: float = 30.0

    def seconds(self, waiting: Waiting) -> float:
        return {
            "head": self.head_seconds,
            "body": self.body_seconds + SECONDS_TO_CLOSE,  # the application refuses a slow body itself, with an answer
            "reader": self.reader_seconds,
            "close": self.reader_seconds,
        }[waiting]


def allowed_connections(wanted: int) -> int:
    """As many as wanted, or as this process may have open files for; its soft limit is raised first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED + SPARE_FILES + len(list(Path("/dev/fd").iterdir()))
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    allowed = max(1, wanted - (needed - soft))
    _log.warning("open files limit the connections", connections=allowed, wanted=wanted, open_files=soft)
    return allowed


class Connections:
    """All connections of the server: closes those that wait too long for their client, and makes room."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.turns = RequestTurns()
        self.closing = 0  # those that were refused and are about to be closed
        self._closed: Counter[str] = Counter()
        self._logged = float("-inf")

    async def sweep_forever(self, connections: "set[Any]") -> None:
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_SWEEPS)
            self.sweep(connections)

    def sweep(self, connections: "set[Any]") -> None:
        now = time.monotonic()
        for connection in list(connections):
            waiting = connection.observe(now)
            if waiting is not None and now - connection.waiting_since > self.limits.seconds(waiting):
                self._closed[waiting] += 1
                connection.give_up(waiting)
        if (self._closed or self.turns.dropped) and now - self._logged > SECONDS_BETWEEN_LOGS:
            self._logged = now
            self._closed["left_early"], self.turns.dropped = self.turns.dropped, 0
            _log.warning("slow_connections_closed", open=len(connections), **self._closed)
            self._closed.clear()

    def make_room(self, connections: "set[Any]") -> bool:
        """Close a few of those that have waited longest for their client; answers whether there were any.

        A few at once, so that a flood of connections does not cost a look at all of them each.
        """
        now = time.monotonic()
        waiting = [one for one in connections if one.observe(now) not in (None, "close") and not one.is_closing]
        waiting.sort(key=lambda one: (one.waiting_for() == "body", one.waiting_since))  # who sends something goes last
        for connection in waiting[: max(1, self.limits.connections // 32)]:
            self._closed["to_make_room"] += 1
            connection.make_way()
        return bool(waiting)

    def count(self, what: str) -> None:
        """One more for the next line in the log."""
        self._closed[what] += 1


class Connection(HttpToolsProtocol):
    """One client's connection."""

    def __init__(self, *args: Any, group: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self.group = group
        self.waiting_since = time.monotonic()
        self._observed: tuple[Waiting | None, int] = ("head", 0)
        self._requests = 0  # begun on this connection
        self._receiving = False  # a request has begun and is not whole
        self._in_head = True
        self._overhead = 0  # bytes of the request so far that are not its body: head, chunk sizes, trailers
        self._body_bytes = 0
        self._data = b""  # that is being parsed
        self._offered_upgrade = False
        self._refused = False
        self._running: Any = None  # the request that is being answered; those sent ahead of it wait
        self.is_closing = False  # by us, in a moment
        self._callback: Callable[[], object] | None = None

    # What a client keeps us waiting for

    def observe(self, now: float) -> Waiting | None:
        """What the connection waits for the client to do; `waiting_since` is when that was first seen."""
        found = (self.waiting_for(), self._requests)
        if found != self._observed:
            self._observed, self.waiting_since = found, now
        return found[0]

    def waiting_for(self) -> Waiting | None:
        if self._refused or self.transport.is_closing():
            return "close"
        if self.flow.write_paused:
            return "reader"
        if self.cycle is None or self.cycle.response_complete:
            return "body" if self._receiving and not self._in_head else "head"
        return "body" if self.cycle.more_body and not self.pipeline else None

    def give_up(self, waiting: Waiting) -> None:
        if waiting == "head" and self._receiving and not self._refused:
            seconds = self.group.limits.head_seconds
            self._refuse(_problem(408, f"the head of the request was not whole after {seconds:g} seconds"))
        elif waiting == "head":
            self.transport.close()
        else:
            self.transport.abort()

    def make_way(self) -> None:
        """There are too many connections, and this one does nothing."""
        if self._receiving and self.group.closing < RESERVED:
            self._refuse(_busy())
        else:
            self._close_soon()
            self.transport.abort()

    def _close_soon(self) -> None:
        self.group.closing += not self.is_closing
        self.is_closing = True

    # Bounds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        allowed, there = self.group.limits.connections, len(self.connections) - self.group.closing
        if there <= allowed or self.group.make_room(self.connections - {self}):
            return
        self.group.count("refused")
        if there > allowed + RESERVED:
            transport.abort()
        else:
            self.app = _HealthOnly(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self.group.closing -= self.is_closing
        self._end_requests()
        super().connection_lost(exc)

    def when_gone(self, callback: Callable[[], object]) -> None:
        """Have this called when the client leaves before it is answered; the last one who asks for it is called."""
        self._callback = callback
        self.flow.resume_reading()  # it is paused after a large body, and the client's leaving would not be heard
        if self.transport.is_closing():
            self._end_requests()

    def _end_requests(self) -> None:
        """Nobody is left to be answered: neither the request that runs nor those sent ahead."""
        for cycle in [self._running, *(queued for queued, _ in self.pipeline)]:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def data_received(self, data: bytes) -> None:
        if self._refused:  # read and thrown away: closing with unread bytes would lose the client our answer
            return
        self._overhead += len(data)
        self._data = data
        super().data_received(data)
        self._data = b""
        if self._overhead > MAX_HEAD + self._body_bytes // 8 and not self._refused:
            self._refuse(_head_too_large() if self._in_head else _problem(400, "the body comes in too small chunks"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._requests += 1
        self._receiving = self._in_head = True
        self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are not taken: nobody reads them
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._offered_upgrade = bool(self.parser.should_upgrade())
        if self._refused or self._offered_upgrade:
            return
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD:
            self._refuse(_head_too_large())
        elif len(self.pipeline) >= MAX_PIPELINED:
            self._refuse(_problem(400, f"more than {MAX_PIPELINED} requests were sent ahead on one connection"))
        else:
            super().on_headers_complete()
            if self.pipeline:
                self.flow.resume_reading()  # few may be sent ahead, and the client's leaving would not be heard

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        cycle.scope[WHEN_GONE] = self.when_gone
        start = partial(super()._start_asgi_task, cycle, app)
        if cycle.scope["path"] in HEALTH:
            start()
        else:
            self.group.turns.begin(cycle, start)

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        self._body_bytes += len(body)
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._overhead = 0
        self._receiving = False
        if not (self._refused or self._offered_upgrade):
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._callback = None
        super().on_response_complete()

    # Refusals below the application

    def send_400_response(self, msg: str) -> None:
        self.group.count("invalid")
        self._refuse(_problem(400, f"this is not HTTP/1.1 ({msg.rstrip('.').lower()})"))

    def _unsupported_upgrade_warning(self) -> None:
        """Read the request as if no upgrade had been offered: the parser stops at one, before the request's body."""
        error, method = sys.exc_info()[1], self.parser.get_method()
        if method == b"CONNECT" or error is None:
            self._refuse(_problem(400, "CONNECT is for proxies, and this is none"))
            return
        kept = [(name, value) for name, value in self.headers if name not in _OF_UPGRADES]
        lines = [b"%b %b HTTP/1.1" % (method, self.url), *(b"%b: %b" % header for header in kept), b"", b""]
        self.parser = HttpRequestParser(self)
        super().data_received(b"\r\n".join(lines) + self._data[error.args[0] :])

    def _refuse(self, problem: Problem) -> None:
        """Answer and close: at once for new bytes, a moment later for the connection, so that the client hears it."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._close_soon()
        self._unset_keepalive_if_required()
        running = self._running
        answering = running is not None and running.response_started and not running.response_complete
        self._end_requests()
        if not answering:
            self.transport.write(_as_bytes(problem))
        if self.group.closing > 2 * RESERVED:  # too many are being refused to wait for each of them
            self.transport.close()
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(SECONDS_TO_CLOSE, self.transport.abort)


class _HealthOnly:
    """The application on a connection that is one too many."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH:
            await _busy().response()(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def _problem(status: int, detail: str, **headers: str) -> Problem:
    phrase = HTTPStatus(status).phrase
    slug = phrase.lower().replace(" ", "-")
    return Problem(status, phrase, detail, slug=slug, headers={"Connection": "close", **headers})


def _head_too_large() -> Problem:
    return _problem(431, f"the head of the request has more than {MAX_HEAD} bytes; send fewer or shorter headers")


def _busy() -> Problem:
    detail = "there are too many connections; try again in a few seconds"
    return _problem(503, detail, **{"Retry-After": "5"})


def _as_bytes(problem: Problem) -> bytes:
    body = json.dumps(problem.body().model_dump(exclude_none=True)).encode()
    headers = {**problem.headers, "Content-Type": "application/problem+json", "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[problem.status] + head.encode() + b"\r\n" + body
