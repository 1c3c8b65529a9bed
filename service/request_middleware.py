"""The one middleware around every request: it assigns an id, writes one line to the log and measures the time.

It logs neither query strings nor headers nor bodies, which may contain secrets. Labels of the measurement are route
templates, not the paths that callers make up. It is on the path of every prediction, so it must be cheap.
"""

import random
import re
import time
from contextvars import ContextVar
from typing import Any

import structlog
from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics
from service.problems import CLIENT_GONE
from service.request_span import QUIET, request_span
from tracing.spans import tracer

UNMATCHED = "unmatched"
HEADER = b"x-request-id"
_random = random.Random()  # ids must differ, but may be guessed
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._-]{1,100}")

_log = structlog.get_logger("protoquad.requests")
_notes: ContextVar[dict[str, Any] | None] = ContextVar("request_notes", default=None)


def note(**facts: Any) -> None:
    """Add these facts to every later log line of this request, and to its last one, from any thread."""
    structlog.contextvars.bind_contextvars(**facts)
    notes = _notes.get()
    if notes is not None:  # the copies of the context that threads get share this dict
        notes.update(facts)


def request_id(request: Request) -> str | None:
    found = getattr(request.state, "request_id", None)
    return found if isinstance(found, str) else None


class RequestMiddleware:
    """Must be the outermost middleware, so that it sees the answer that is sent."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        scope.setdefault("state", {})["request_id"] = exchange.id
        structlog.contextvars.clear_contextvars()  # a connection's context may hold those of an earlier request
        structlog.contextvars.bind_contextvars(request_id=exchange.id)
        _notes.set(exchange.notes)
        span = None if (current := tracer()) is None else request_span(current, scope, exchange.notes)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except BaseException as error:
            exchange.broken_by(error)
            raise
        finally:
            status = exchange.status or CLIENT_GONE
            self.metrics.answered(scope["method"], route_template(scope), status, exchange.seconds())
            exchange.log()
            if span is not None:
                span.end(route_template(scope), status, exchange.stream_began)


class _Exchange:
    """A request and its answer, as they pass."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self.stream_began: float | None = None
        self._bytes_in = 0
        self.status: int | None = None
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        self.id = given.decode() if _ACCEPTABLE.fullmatch(given) else f"{_random.getrandbits(128):032x}"
        self.notes: dict[str, Any] = {}

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._bytes_in += len(message.get("body", b""))
        elif self.status is None:  # the client is gone
            self.status = CLIENT_GONE
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            self.status = self.status or message["status"]
            if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers):
                self.stream_began = time.perf_counter()
            message["headers"] = [*headers, (HEADER, self.id.encode())]
        await self._send(message)

    def broken_by(self, error: BaseException) -> None:
        """The answer was not completed: an error, or the server stops."""
        self.notes["broken_by"] = type(error).__name__
        if self.status is None:
            self.status = 500 if isinstance(error, Exception) else CLIENT_GONE

    def seconds(self) -> float:
        """How long the answer took; of an event stream, which lasts as long as its reader likes, until it began."""
        return (self.stream_began or time.perf_counter()) - self._began

    def log(self) -> None:
        facts = self.notes | {
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": self.status,
            "milliseconds": round((time.perf_counter() - self._began) * 1000, 1),
            "bytes_in": self._bytes_in,
            "request_id": self.id,
        }
        self._level()("request", **facts)

    def _level(self) -> Any:
        if self._scope["path"] in QUIET:
            return _log.debug
        return _log.warning if (self.status or 500) >= 500 else _log.info


def route_template(scope: Scope) -> str:
    """`/models/{model}/classes/{class_id}` instead of the path that was asked for: a label must have few values."""
    included = scope.get("fastapi", {}).get("effective_route_context")  # a router's own route lacks its prefix
    route: Any = included or scope.get("route")
    path = getattr(route, "path", None)
    if isinstance(path, str):
        return path
    fixed = {getattr(route, "path", None) for route in scope["app"].routes} if "app" in scope else set()
    return scope["path"] if scope["path"] in fixed else UNMATCHED  # /docs and the like set no route
