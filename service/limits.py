"""How much and how long a request may send. Counts bytes as they arrive, so no parser sees one beyond the cap."""

import asyncio
import re
import time

import anyio
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Problem, request_id

MEGABYTE = 1024 * 1024
_CLOSE = {"Connection": "close"}  # what follows on this connection is the rest of a body that nobody reads


class BodyLimit:
    """Refuses a body that is too large or too slow, once, and then closes the connection.

    `linger` is how long what still arrives is thrown away before that: a connection that is closed with unread bytes is
    reset, and a client that was still sending would lose the answer.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float, linger: float = 2.0) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.seconds = seconds
        self.linger = linger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._announced(scope)
        if refusal is None:
            body = _Body(receive, send, self.max_bytes, self.seconds)
            try:
                await self.app(scope, body.receive, body.send)
            except Exception:
                if body.refusal is None:
                    raise
            refusal = body.refusal
        if refusal is not None:
            await self._answer(refusal, scope, receive, send)

    def _announced(self, scope: Scope) -> Problem | None:
        """What is wrong with the length that the client says it will send."""
        lengths = {value.strip() for name, value in scope["headers"] if name == b"content-length"}
        if not lengths:
            return None
        if len(lengths) > 1 or not re.fullmatch(rb"[0-9]+", min(lengths)):
            return Problem(
                400,
                "The Content-Length cannot be read",
                "Content-Length must be one number of bytes; leave it to your HTTP library",
                slug="malformed-request",
                headers=_CLOSE,
            )
        digits = min(lengths).lstrip(b"0") or b"0"
        return _too_large(self.max_bytes) if len(digits) > 18 or int(digits) > self.max_bytes else None

    async def _answer(self, refusal: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        response = refusal.response(request_id(Request(scope)))
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body, "more_body": True})
        with anyio.move_on_after(self.linger):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Body:
    """One request's body on its way in, and whether its answer is on its way out."""

    def __init__(self, receive: Receive, send: Send, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._bytes = 0
        self._whole = False
        self._answered = False
        self.refusal: Problem | None = None

    async def receive(self) -> Message:
        if self.refusal is not None:
            raise self.refusal
        if self._whole:  # only the client's leaving can follow, and that may be waited for as long as it takes
            return await self._receive()
        message = await self._in_time()
        if message["type"] != "http.request":
            return message
        self._bytes += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._bytes > self._max_bytes:
            return self._refuse(_too_large(self._max_bytes))
        return message

    async def _in_time(self) -> Message:
        if not self._answered:
            try:
                async with asyncio.timeout(self._deadline - time.monotonic()):
                    return await self._receive()
            except TimeoutError:
                if not self._answered:
                    return self._refuse(_too_slow(self._seconds))
        return await self._receive()

    def _refuse(self, problem: Problem) -> Message:
        """Stop the reader; where the answer has begun, all that can be done is to hang up."""
        if self._answered:
            return {"type": "http.disconnect"}
        self.refusal = problem
        raise problem

    async def send(self, message: Message) -> None:
        if self.refusal is not None:  # whatever the reader makes of its interruption, the refusal is the answer
            return
        self._answered = True
        await self._send(message)


def _too_large(max_bytes: int) -> Problem:
    size = f"{max_bytes / MEGABYTE:.4g} MB" if max_bytes >= MEGABYTE else f"{max_bytes} bytes"
    return Problem(
        413,
        "The body is too large",
        f"the body is larger than {size}; send fewer or smaller pictures per request",
        slug="body-too-large",
        headers=_CLOSE,
    )


def _too_slow(seconds: float) -> Problem:
    return Problem(
        408,
        "The body did not arrive in time",
        f"the body was not whole after {seconds:g} seconds; send fewer or smaller pictures per request",
        slug="body-too-slow",
        headers=_CLOSE,
    )
