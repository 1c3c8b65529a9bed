"""Ends the work for a request when its caller has left, or when it takes too long."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from fastapi import Request
from starlette.requests import ClientDisconnect

from service.problems import Problem

WHEN_GONE = "protoquad.when_gone"
"""In the scope of a request: a function that registers a callback for when the client leaves. With ASGI alone every
request would need another task for that."""

Result = TypeVar("Result")
WhenGone = Callable[[Callable[[], object]], None]


async def while_wanted(request: Request, work: Awaitable[Result], seconds: float) -> Result:
    """The result of the work, which is cancelled when the caller leaves or the time is over.

    A scope of anyio cancels it and waits for a running thread: a transaction that has begun is completed, and no more
    threads are busy than allowed.
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
    detail = f"the service could not do this within {seconds:g} seconds; try again later"
    return Problem(503, "It takes too long", detail, slug="overloaded", headers={"Retry-After": "5"})
