"""One client's connection: uvicorn's HTTP protocol, with limits for bytes, time and the requests sent ahead.

While every connection is at work, a further one is answered with 503, unless it asks for the service's health.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from httptools import HttpRequestParser
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.cancellation import WHEN_GONE
from service.connection_limits import RESERVED, SECONDS_TO_CLOSE, Waiting
from service.connections import Connections
from service.problems import MEDIA_TYPE, Problem

HEALTH = frozenset({"/livez", "/readyz", "/v2/health/live", "/v2/health/ready"})
MAX_HEAD = 32 * 1024  # bytes: a key, some cookies and the headers of a few proxies take a tenth of it
MAX_PIPELINED = 8  # requests sent ahead on one connection
_OF_UPGRADES = frozenset({b"upgrade", b"connection", b"http2-settings"})


class Connection(HttpToolsProtocol):
    def __init__(self, *args: Any, group: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self.group = group
        self.waiting_since = time.monotonic()
        self._observed: tuple[Waiting | None, int] = ("head", 0)
        self._requests = 0  # that began on this connection
        self._receiving = False  # a request has begun to arrive and is not complete
        self._in_head = True
        self._overhead = 0  # bytes of the request so far besides its body: head, chunk sizes, trailers
        self._body_bytes = 0
        self._data = b""  # being parsed now
        self._offered_upgrade = False
        self._refused = False
        self._running: Any = None  # the request that is being answered; those sent ahead wait
        self.is_closing = False  # the server will close it in a moment
        self._callback: Callable[[], object] | None = None

    # What the connection waits for

    def observe(self, now: float) -> Waiting | None:
        """What the connection waits for its client to do; `waiting_since` is when that was first observed."""
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
            self._refuse(_problem(408, f"the head of the request was not complete after {seconds:g} seconds"))
        elif waiting == "head":
            self.transport.close()
        else:
            self.transport.abort()

    def make_way(self) -> None:
        """Close this connection, which only waits, because there are too many."""
        if self._receiving and self.group.closing < RESERVED:
            self._refuse(_busy())
        else:
            self._close_soon()
            self.transport.abort()

    def _close_soon(self) -> None:
        self.group.closing += not self.is_closing
        self.is_closing = True

    # Limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        allowed, present = self.group.limits.connections, len(self.connections) - self.group.closing
        if present <= allowed or self.group.make_room(self.connections - {self}):
            return
        self.group.count("refused")
        if present > allowed + RESERVED:
            transport.abort()
        else:
            self.app = _HealthOnly(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        self.group.closing -= self.is_closing
        self._end_requests()
        super().connection_lost(exc)

    def when_gone(self, callback: Callable[[], object]) -> None:
        """Call this when the client leaves before it is answered; only the last callback is kept."""
        self._callback = callback
        self.flow.resume_reading()  # paused after a large body, so that the client's leaving would go unnoticed
        if self.transport.is_closing():
            self._end_requests()

    def _end_requests(self) -> None:
        """The client is gone: end the request that runs and those sent ahead."""
        for cycle in [self._running, *(queued for queued, _ in self.pipeline)]:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def data_received(self, data: bytes) -> None:
        if self._refused:  # read and dropped: if unread bytes were left on closing, the client would not get the answer
            return
        self._overhead += len(data)
        self._data = data
        super().data_received(data)
        self._data = b""
        if self._overhead > MAX_HEAD + self._body_bytes // 8 and not self._refused:
            self._refuse(_head_too_large() if self._in_head else _problem(400, "the chunks of the body are too small"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._requests += 1
        self._receiving = self._in_head = True
        self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are ignored
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._offered_upgrade = bool(self.parser.should_upgrade())
        if self._refused or self._offered_upgrade:
            return
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD:
            self._refuse(_head_too_large())
        elif len(self.pipeline) >= MAX_PIPELINED:
            detail = f"more than {MAX_PIPELINED} requests were sent ahead on one connection; wait for their answers"
            self._refuse(_problem(400, detail))
        else:
            super().on_headers_complete()
            if self.pipeline:
                self.flow.resume_reading()  # otherwise the client's leaving would go unnoticed

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
        """Read the request as if it offered no upgrade: at an upgrade the parser stops before the body."""
        error, method = sys.exc_info()[1], self.parser.get_method()
        if method == b"CONNECT" or error is None:
            self._refuse(_problem(400, "CONNECT is for proxies, and this is not a proxy"))
            return
        kept = [(name, value) for name, value in self.headers if name not in _OF_UPGRADES]
        lines = [b"%b %b HTTP/1.1" % (method, self.url), *(b"%b: %b" % header for header in kept), b"", b""]
        self.parser = HttpRequestParser(self)
        super().data_received(b"\r\n".join(lines) + self._data[error.args[0] :])

    def _refuse(self, problem: Problem) -> None:
        """Answer and drop what still arrives; close the connection after a moment, in which the client can read."""
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
        if self.group.closing > 2 * RESERVED:  # too many were refused to wait for each of them
            self.transport.close()
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(SECONDS_TO_CLOSE, self.transport.abort)


class _HealthOnly:
    """The application for a connection beyond the limit."""

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
    headers = {**problem.headers, "Content-Type": MEDIA_TYPE, "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[problem.status] + head.encode() + b"\r\n" + body
