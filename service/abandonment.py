"""Work for a caller is work for nobody once the caller has left, or once it has taken too long."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.errors import Problem

WHEN_GONE = "protoquad.when_gone"
"""In the scope of a request: tells its connection whom to call when the client leaves. To ask by ASGI alone would take
a task of its own for every request."""

Result = TypeVar("Result")
WhenGone = Callable[[Callable[[], object]], None]


async def while_wanted(
    request: Request, work: "Coroutine[Any, Any, Result] | asyncio.Future[Result]", seconds: float
) -> Result:
    """The result of the work, which is cancelled when the caller leaves or the time is over."""
    working, gone = asyncio.ensure_future(work), False

    def leave() -> None:
        nonlocal gone
        gone = True
        working.cancel()

    when_gone: WhenGone | None = request.scope.get(WHEN_GONE)
    if when_gone is not None:
        when_gone(leave)
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, working.cancel)
    try:
        return await working
    except asyncio.CancelledError:
        if gone:
            raise ClientDisconnect from None
        if timer.when() <= loop.time():
            raise _too_long(seconds) from None
        raise
    finally:
        timer.cancel()


async def to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of work that is done whole, whoever leaves meanwhile: a transaction, say."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        working.exception()  # asked for, so that asyncio does not report it: nobody is left to hear of it
        raise


def _too_long(seconds: float) -> Problem:
    detail = f"the service was not done with this within {seconds:g} seconds; try again later"
    return Problem(503, "It takes too long", detail, slug="overloaded", headers={"Retry-After": "5"})
