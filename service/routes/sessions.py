"""`/sessions`: what is being learned, live."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header
from fastapi.responses import StreamingResponse

from service.auth import requires
from service.dependencies import Cursor, Limit, ModelName, Parts, Service, SessionInPath
from service.errors import Problem, responses
from service.schemas import Page, SessionBody
from store import catalogue, sessions
from store.models import SessionEvent, SessionId

router = APIRouter(tags=["sessions"])

SECONDS_BETWEEN_COMMENTS = 15.0  # keeps proxies from closing a stream that has nothing to tell
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Go on after this event.", max_length=20)]


@router.get(
    "/sessions",
    response_model=Page[SessionBody],
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="List the sessions",
)
def list_sessions(service: Service, model: ModelName, cursor: Cursor, limit: Limit = 50) -> Page[SessionBody]:
    """Newest first."""
    with service.database.read() as db:
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
def show_session(service: Service, model: ModelName, session_id: SessionInPath) -> SessionBody:
    with service.database.read() as db:
        return SessionBody.of(sessions.get(db, catalogue.get(db, model).id, session_id))


@router.post(
    "/sessions/{session_id}/cancel",
    status_code=202,
    response_model=SessionBody,
    responses=responses(401, 403, 404, 409, 422, 503, 507),
    dependencies=[Depends(requires("teach"))],
    summary="Cancel a session",
)
def cancel_session(service: Service, model: ModelName, session_id: SessionInPath) -> SessionBody:
    """A queued session ends at once, a running one between two steps. Its classes stay servable as they are."""
    with service.database.write() as db:
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
    service: Service, model: ModelName, session_id: SessionInPath, last: LastEventId = None
) -> StreamingResponse:
    """Server-sent events: `queued`, `running`, `progress`, and how it ended. Reconnect with `Last-Event-ID`."""
    if last is not None and not (last.isascii() and last.isdigit()):
        detail = f"'{last}' is no event id; send back the id of the last event you saw"
        raise Problem(422, "The Last-Event-ID cannot be used", detail, slug="invalid-parameter")
    found = await run_sync(show_session, service, model, session_id)
    stream = _events(service, SessionId(found.id), None if last is None else int(last))
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _events(service: Parts, session_id: SessionId, after: int | None) -> AsyncIterator[str]:
    told = time.monotonic()
    while not service.stopping:
        events, over = await run_sync(_news, service, session_id, after)
        for event in events:
            after = event.id
            told = time.monotonic()
            yield _formatted(event)
        if over and not events:
            return
        if time.monotonic() - told > SECONDS_BETWEEN_COMMENTS:
            told = time.monotonic()
            yield ": still here\n\n"
        if not over:
            await asyncio.sleep(service.settings.poll_seconds)


def _news(service: Parts, session_id: SessionId, after: int | None) -> tuple[list[SessionEvent], bool]:
    with service.database.read() as db:
        events = sessions.events(db, session_id, after=None if after is None else min(after, 2**62))
        return events, sessions.is_over(db, session_id)


def _formatted(event: SessionEvent) -> str:
    data = json.dumps({**event.data, "at": event.at.isoformat()}, ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.event}\ndata: {data}\n\n"
