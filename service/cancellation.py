"""Work for a caller is work for nobody once the caller has left, or once it has taken too long."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from fastapi import Request
from starlette.requests import ClientDisconnect

from service.errors import Problem

WHEN_GONE = "protoquad.when_gone"
"""In the scope of a request: tells its connection whom to call when the client leaves. To ask by ASGI alone would take
a task of its own for every request."""

Result = TypeVar("Result")
WhenGone = Callable[[Callable[[], object]], None]


async def while_wanted(request: Request, work: Awaitable[Result], seconds: float) -> Result:
    """The result of the work, which is cancelled when the caller leaves or the time is over.

    Cancelled by a scope of anyio's, which waits for a thread that is at work: a transaction that has begun is written
    to its end, and no more threads are busy than may be.
    """
    gone = False

    def leave() -> None:
        nonlocal gone
        gone = True
        scope.cancel()

    when_gone: WhenGone | None = request.scope.get(WHEN_GONE)
    with anyio.move_on_after(seconds) as scope:
        if when_gone is not None:
            when_gone(leave)
        return await work
    raise ClientDisconnect if gone else _too_long(seconds)


def _too_long(seconds: float) -> Problem:
    detail = f"the service was not done with this within {seconds:g} seconds; try again later"
    return Problem(503, "It takes too long", detail, slug="overloaded", headers={"Retry-After": "5"})
