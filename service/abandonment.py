"""Work for a caller is work for nobody once the caller has left, or once it has taken too long."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.errors import Problem

Result = TypeVar("Result")


async def while_wanted(
    request: Request, work: "Coroutine[Any, Any, Result] | asyncio.Future[Result]", seconds: float
) -> Result:
    """The result of the work, which is cancelled when the caller leaves or the time is over.

    Call it when the body has been read: from then on a caller has nothing more to say but goodbye.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    leaving.add_done_callback(lambda _: working.cancel())
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, working.cancel)
    try:
        return await working
    except asyncio.CancelledError:
        if leaving.done():
            raise ClientDisconnect from None
        if timer.when() <= loop.time():
            raise _too_long(seconds) from None
        raise
    finally:
        timer.cancel()
        leaving.cancel()


async def to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of work that is done whole, whoever leaves meanwhile: a transaction, say."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        working.exception()  # asked for, so that asyncio does not report it: nobody is left to hear of it
        raise


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_long(seconds: float) -> Problem:
    detail = f"the service was not done with this within {seconds:g} seconds; try again later"
    return Problem(503, "It takes too long", detail, slug="overloaded", headers={"Retry-After": "5"})
