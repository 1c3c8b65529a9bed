"""One line in the log for each request, and an id that every line of that request carries.

Logs neither query strings nor headers nor bodies: those may hold what is nobody's business.
"""

import random
import re
import time
from contextvars import ContextVar
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import CLIENT_GONE

QUIET = frozenset({"/livez", "/readyz", "/metrics"})  # asked every few seconds by machines
HEADER = "X-Request-ID"
_random = random.Random()  # seeded by the system once: ids must differ, and need not be hard to guess
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,100}")

_log = structlog.get_logger("protoquad.requests")
_notes: ContextVar[dict[str, Any] | None] = ContextVar("request_notes", default=None)


def note(**facts: Any) -> None:
    """Have every later line of this request say these too, and its closing line, from whichever thread."""
    structlog.contextvars.bind_contextvars(**facts)
    notes = _notes.get()
    if notes is not None:  # one dict, shared by the copies of the context that threads are given
        notes.update(facts)


class RequestLog:
    """Belongs outside of all other middleware, so that it sees the answer that is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        scope.setdefault("state", {})["request_id"] = exchange.request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=exchange.request_id)
        token = _notes.set(exchange.notes)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except BaseException as error:
            exchange.broken_by(error)
            raise
        finally:
            exchange.log()
            _notes.reset(token)
            structlog.contextvars.clear_contextvars()


class _Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self._bytes_in = 0
        self._status: int | None = None
        given = Headers(scope=scope).get(HEADER, "")
        self.request_id = given if _ACCEPTABLE.fullmatch(given) else f"{_random.getrandbits(128):032x}"
        self.notes: dict[str, Any] = {}

    async def receive(self) -> Message:
        message = await self._receive()
        self._bytes_in += len(message.get("body", b""))
        if message["type"] == "http.disconnect" and self._status is None:
            self._status = CLIENT_GONE
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = self._status or message["status"]
            MutableHeaders(scope=message)[HEADER] = self.request_id
        await self._send(message)

    def broken_by(self, error: BaseException) -> None:
        """The answer did not come to its end: a fault of ours, or we were told to stop."""
        self.notes["broken_by"] = type(error).__name__
        if self._status is None:
            self._status = 500 if isinstance(error, Exception) else CLIENT_GONE

    def log(self) -> None:
        facts = self.notes | {
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": self._status,
            "milliseconds": round((time.perf_counter() - self._began) * 1000, 1),
            "bytes_in": self._bytes_in,
            "request_id": self.request_id,
        }
        self._level()("request", **facts)

    def _level(self) -> Any:
        if self._scope["path"] in QUIET:
            return _log.debug
        return _log.warning if (self._status or 500) >= 500 else _log.info
