"""`/events`: the news of a model, live, in one stream."""

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
from service.dependencies import Context, ModelName
from service.event_stream import LONGEST_STREAM, SECONDS_BETWEEN_COMMENTS, EventStream
from service.problems import Problem, responses
from store import catalogue
from store.models import ModelId
from store.news import Moment, News
from store.outages import is_outage

router = APIRouter(tags=["events"])

LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="Go on after this event.", max_length=100)
]


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events of the kinds above, without end."},
        **responses(401, 403, 404, 422, 503),
    },
    dependencies=[Depends(requires("predict"))],
    summary="Watch a model",
)
async def watch_model(
    request: Request, context: Context, model: ModelName, last: LastEventId = None
) -> StreamingResponse:
    """Server-sent events: `taught`, `deleted`, `renamed`, `version`, `head`, `session` and `inbox`, each with ids
    of what it is about. Reconnect with `Last-Event-ID`: what happened meanwhile comes first.

    A stream ends after an hour at the latest, and within seconds once its key is revoked.
    """
    seen = None if last is None else Moment.parse(last)
    if last is not None and seen is None:
        detail = "that is no id of an event of this stream; send back the id of the last event you saw"
        raise Problem(422, "The Last-Event-ID cannot be used", detail, slug="invalid-parameter")
    model_id = await run_sync(_model_id, context, model)
    return EventStream(_events(context, request, model, model_id, seen), context.session_watch.streams)


def _model_id(context: AppContext, model: str) -> ModelId:
    with context.database.read() as db:
        return catalogue.get(db, model).id


async def _events(
    context: AppContext, request: Request, model: str, model_id: ModelId, seen: Moment | None
) -> AsyncIterator[str]:
    began = said = time.monotonic()
    while not context.stopping and time.monotonic() - began < LONGEST_STREAM:
        news = await _news(context, model_id, seen)
        if not requires("predict").still_admits(request):
            return
        text = ""
        if news is not None:
            text = _formatted(model, news) if seen is not None else f"id: {news.moment}\nretry: 1000\n\n"
            seen = news.moment
        if not text and time.monotonic() - said > SECONDS_BETWEEN_COMMENTS:
            text = ": still here\n\n"
        if text:
            said = time.monotonic()
            yield text
        if news is not None and news.over:
            return
        await asyncio.sleep(context.settings.poll_seconds)


async def _news(context: AppContext, model_id: ModelId, seen: Moment | None) -> News | None:
    """None while the database is away: the stream goes on when it is back."""
    try:
        async with asyncio.timeout(SECONDS_BETWEEN_COMMENTS):
            return await context.session_watch.model_news((model_id, seen))
    except Exception as error:
        if isinstance(error, TimeoutError) or is_outage(error):
            return None
        raise


def _formatted(model: str, news: News) -> str:
    """The id comes with the last event of a poll: whoever loses the connection between them gets all of them again."""
    texts = [
        f"event: {item.event}\ndata: {json.dumps({'model': model, **item.data}, ensure_ascii=False)}\n"
        for item in news.items
    ]
    if texts:
        texts[-1] = f"id: {news.moment}\n" + texts[-1]
    return "".join(text + "\n" for text in texts)
