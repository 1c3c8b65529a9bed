"""`/sessions`: what is being learned, live."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse

from service.app_context import AppContext
from service.auth import requires
from service.dependencies import Context, Cursor, Limit, ModelName, SessionInPath
from service.event_stream import LONGEST_STREAM, SECONDS_BETWEEN_COMMENTS, EventStream
from service.problems import Problem, responses
from service.schemas import Page, SessionBody
from service.session_watch import News
from store import catalogue, sessions
from store.models import SessionEvent, SessionId
from store.outages import is_outage

router = APIRouter(tags=["sessions"])

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Go on after this event.", max_length=20)]


@router.get(
    "/sessions",
    response_model=Page[SessionBody],
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="List the sessions",
)
def list_sessions(context: Context, model: ModelName, cursor: Cursor, limit: Limit = 50) -> Page[SessionBody]:
    """Newest first."""
    with context.database.read() as db:
        rows = sessions.page(db, catalogue.get(db, model).id, before=cursor, limit=limit + 1)
    items = [SessionBody.of(row) for row in rows[:limit]]
    return Page(items=items, next=str(items[-1].id) if len(rows) > limit else None)


@router.get(
    "/sessions/{session_id}",
    response_model=SessionBody,
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Show a session",
)
def show_session(context: Context, model: ModelName, session_id: SessionInPath) -> SessionBody:
    with context.database.read() as db:
        return SessionBody.of(sessions.get(db, catalogue.get(db, model).id, session_id))


@router.post(
    "/sessions/{session_id}/cancel",
    status_code=202,
    response_model=SessionBody,
    responses=responses(401, 403, 404, 409, 422, 503, 507),
    dependencies=[Depends(requires("teach"))],
    summary="Cancel a session",
)
def cancel_session(context: Context, model: ModelName, session_id: SessionInPath) -> SessionBody:
    """A queued session ends at once, a running one between two steps. Its classes stay servable as they are."""
    with context.database.write() as db:
        return SessionBody.of(sessions.cancel(db, catalogue.get(db, model).id, session_id))


@router.get(
    "/sessions/{session_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/event-stream": {}},
            "description": "An event for each step, until it is over.",
        },
        **responses(401, 403, 404, 422, 503),
    },
    dependencies=[Depends(requires("predict"))],
    summary="Watch a session",
)
async def watch_session(
    request: Request, context: Context, model: ModelName, session_id: SessionInPath, last: LastEventId = None
) -> StreamingResponse:
    """Server-sent events: `queued`, `running`, `progress`, and how it ended. Reconnect with `Last-Event-ID`.

    A stream ends after an hour at the latest, and within seconds once its key is revoked.
    """
    if last is not None and not (last.isascii() and last.isdigit()):
        detail = f"'{last}' is no event id; send back the id of the last event you saw"
        raise Problem(422, "The Last-Event-ID cannot be used", detail, slug="invalid-parameter")
    found = await run_sync(show_session, context, model, session_id)
    events = _events(context, request, SessionId(found.id), -1 if last is None else int(last))
    return EventStream(events, context.session_watch.streams)


async def _events(context: AppContext, request: Request, session_id: SessionId, seen: int) -> AsyncIterator[str]:
    """Whatever comes after the event `seen`.

    The whole story is read first, whatever was seen of it: from then on all who watch a session ask the same.
    """
    began = said = time.monotonic()
    after: int | None = None
    while not context.stopping and time.monotonic() - began < LONGEST_STREAM:
        news = await _news(context, session_id, after)
        if not requires("predict").still_admits(request):
            return
        after = news.events[-1].id if news.events else after
        text = "".join(_formatted(event) for event in news.events if event.id > seen)
        if not text and time.monotonic() - said > SECONDS_BETWEEN_COMMENTS:
            text = ": still here\n\n"
        if text:
            said = time.monotonic()
            yield text
        if news.over:
            return
        await asyncio.sleep(context.settings.poll_seconds)


async def _news(context: AppContext, session_id: SessionId, after: int | None) -> News:
    """A database that is away has no news: the stream goes on when it is back."""
    try:
        async with asyncio.timeout(SECONDS_BETWEEN_COMMENTS):
            return await context.session_watch.news((session_id, after))
    except Exception as error:
        if isinstance(error, TimeoutError) or is_outage(error):
            return News([], over=False)
        raise


def _formatted(event: SessionEvent) -> str:
    data = json.dumps({**event.data, "at": event.at.isoformat()}, ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.event}\ndata: {data}\n\n"
