"""A stream of server-sent events: it takes one of a bounded number of places, and ends when nobody reads it."""

import asyncio
from collections.abc import AsyncIterator

from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from service.problems import RETRY_SECONDS, Problem
from service.request_middleware import note
from service.session_watch import Places

SECONDS_BETWEEN_COMMENTS = 15.0  # keeps proxies from closing an idle stream
SECONDS_TO_SEND = 30.0  # for a reader to make room for the next event
LONGEST_STREAM = 3600.0  # seconds; a reader that is still there comes back with Last-Event-ID


class EventStream(StreamingResponse):
    """Takes a place for as long as it lasts, and gives it up when its reader stops reading."""

    def __init__(self, events: AsyncIterator[str], places: Places) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(SECONDS_TO_SEND):
                await send(message)

        if self._places.full:
            raise _too_many_streams(self._places.number)
        with self._places.take():
            try:
                await super().__call__(scope, receive, send_in_time)
            except TimeoutError:
                note(stream="the reader stopped reading")


def _too_many_streams(number: int) -> Problem:
    detail = (
        f"{number} event streams are open, as many as may be; "
        f"try again in {RETRY_SECONDS} seconds, or ask for what you watch from time to time"
    )
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return Problem(503, "Too many event streams", detail, slug="too-many-streams", headers=headers)
