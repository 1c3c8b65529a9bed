"""How much and how long a request may send. Counts bytes as they arrive, so no parser sees one beyond the limit.

A body may have 64 KB, unless its route allows more with `expect_images`, which it does once it has checked the caller's
key. Bodies with images share one budget for all requests in flight.
"""

import asyncio
import re
import time

import anyio
from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import RETRY_SECONDS, Problem
from service.request_middleware import request_id

MEGABYTE = 1024 * 1024
SMALL_BODY = 64 * 1024  # bytes of a body without images
ZIP_ROUTE = "/base"  # how the paths end that take a zip
_BODY = "protoquad.body"  # in the scope of a request
_CLOSE = {"Connection": "close"}  # the rest of a body that nobody reads follows on this connection


def expect_images(request: Request) -> None:
    """Allow the body to be as large as one with images; raises a 503 if all bodies together are too large."""
    body: _Body | None = request.scope.get(_BODY)
    if body is not None:
        body.expect_images()


def expect_zip(request: Request) -> None:
    """Allow the body to be as large as a zip; it goes to disk, so it takes nothing of the budget of all bodies."""
    body: _Body | None = request.scope.get(_BODY)
    if body is not None:
        body.expect_zip()


class Budget:
    """The bytes that all bodies in flight may have together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def take(self, count: int) -> bool:
        """Whether there was room; there always is for a single body, however small the budget."""
        if self.taken and self.taken + count > self.limit:
            return False
        self.taken += count
        return True

    def give_back(self, count: int) -> None:
        self.taken -= count


class BodyLimit:
    """Refuses a body that is too large or too slow, and closes a connection whose body nobody reads.

    For `linger` seconds before that, what still arrives is dropped: a connection that is closed with unread bytes is
    reset, and a client that is still sending would lose the answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        seconds: float,
        *,
        zip_bytes: int = 0,
        all_bytes: int = 2**62,
        small_bytes: int = SMALL_BODY,
        linger: float = 2.0,
    ) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.zip_bytes = zip_bytes
        self.seconds = seconds
        self.small_bytes = min(small_bytes, max_bytes)
        self.budget = Budget(all_bytes)
        self.linger = linger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(self, scope, receive, send)
        scope[_BODY] = body
        try:
            if body.refusal is None:
                await self.app(scope, body.receive, body.send)
        except Exception:
            if body.refusal is None:
                raise
        finally:
            body.give_back()
        if body.refusal is not None:
            await body.answer_refusal(request_id(Request(scope)))


class _Body:
    """The body of one request as it arrives, and whether its answer has begun."""

    def __init__(self, limits: BodyLimit, scope: Scope, receive: Receive, send: Send) -> None:
        self._limits = limits
        self._receive = receive
        self._send = send
        self._deadline = time.monotonic() + limits.seconds
        self._allowed = limits.small_bytes
        self._bytes = 0
        self._taken = 0  # of the budget
        self._budgeted = False
        self._announced: int | None = None
        self._whole = True
        self._answered = False
        self.refusal: Problem | None = None
        self._read_head(scope)

    def _read_head(self, scope: Scope) -> None:
        """Whether there is a body, and the length that the client announces."""
        lengths = set()
        for name, value in scope["headers"]:
            if name == b"content-length":
                lengths.add(value.strip())
            elif name == b"transfer-encoding":
                self._whole = False
        if not lengths:
            return
        if len(lengths) > 1 or not re.fullmatch(rb"[0-9]+", min(lengths)):
            self._whole = False
            self.refusal = _unreadable_length()
            return
        digits = min(lengths).lstrip(b"0") or b"0"
        self._announced = int(digits[:20])  # enough digits to know that it is too large
        self._whole = self._whole and self._announced == 0
        most = self._limits.zip_bytes if scope["path"].endswith(ZIP_ROUTE) else self._limits.max_bytes
        if self._announced > most:
            self.refusal = _too_large(most)

    def expect_images(self) -> None:
        self._allowed = self._limits.max_bytes
        self._budgeted = True
        self._take(self._announced or 0)

    def expect_zip(self) -> None:
        self._allowed = self._limits.zip_bytes

    def _take(self, count: int) -> None:
        if not self._limits.budget.take(count):
            raise _no_room()
        self._taken += count

    def give_back(self) -> None:
        self._limits.budget.give_back(self._taken)
        self._taken = 0

    async def receive(self) -> Message:
        if self.refusal is not None:
            raise self.refusal
        if self._whole:  # only a disconnect can follow, for which there is no time limit
            return await self._receive()
        if (self._announced or 0) > self._allowed:
            return self._refuse(_too_large(self._allowed))
        message = await self._in_time()
        if message["type"] != "http.request":
            return message
        self._bytes += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._bytes > self._allowed:
            return self._refuse(_too_large(self._allowed))
        if self._budgeted and self._bytes > self._taken:  # its length was not announced
            try:
                self._take(self._bytes - self._taken)
            except Problem as problem:
                return self._refuse(problem)
        return message

    async def _in_time(self) -> Message:
        if not self._answered:
            try:
                async with asyncio.timeout(self._deadline - time.monotonic()):
                    return await self._receive()
            except TimeoutError:
                if not self._answered:
                    return self._refuse(_too_slow(self._limits.seconds))
        return await self._receive()

    def _refuse(self, problem: Problem) -> Message:
        """Stop the reader; if the answer has begun, the connection can only be closed."""
        if self._answered:
            return {"type": "http.disconnect"}
        self.refusal = problem
        raise problem

    async def send(self, message: Message) -> None:
        if self.refusal is not None:  # the refusal is the answer, whatever the reader sends after its interruption
            return
        self._answered = True
        await self._send_early(message)

    async def _send_early(self, message: Message) -> None:
        """If the body is not complete, close the connection after the answer, but let the client read it first."""
        if not self._whole and message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_CLOSE)
        elif not self._whole and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _drain(self) -> None:
        with anyio.move_on_after(self._limits.linger):
            while (message := await self._receive())["type"] == "http.request" and message.get("more_body", False):
                pass

    async def answer_refusal(self, own_id: str | None) -> None:
        assert self.refusal is not None
        response = self.refusal.response(own_id)
        start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        self._whole = False  # it may be complete and too large
        await self._send_early(start)
        await self._send_early({"type": "http.response.body", "body": response.body})


def _unreadable_length() -> Problem:
    return Problem(
        400,
        "The Content-Length cannot be read",
        "Content-Length must be one number of bytes; let your HTTP library set it",
        slug="malformed-request",
    )


def _too_large(max_bytes: int) -> Problem:
    size = f"{max_bytes / MEGABYTE:.4g} MB" if max_bytes >= MEGABYTE else f"{max_bytes} bytes"
    return Problem(
        413,
        "The body is too large",
        f"the body is larger than {size}; send fewer or smaller images per request",
        slug="body-too-large",
    )


def _too_slow(seconds: float) -> Problem:
    return Problem(
        408,
        "The body did not arrive in time",
        f"the body was not complete after {seconds:g} seconds; send fewer or smaller images per request",
        slug="body-too-slow",
    )


def _no_room() -> Problem:
    return Problem(
        503,
        "Too many bytes are in flight",
        f"the requests in flight have as many bytes as the service accepts; try again in {RETRY_SECONDS} seconds",
        slug="overloaded",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )
