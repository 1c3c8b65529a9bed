"""The answer to a caller who changes what a model knows, and who may prefer to wait until it is refined."""

import asyncio
import contextlib
import re
import time
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import Header, Response
from fastapi.responses import JSONResponse

from engine.single_flight import Busy
from learners.taught_answer import Outcome
from service.app_context import AppContext
from service.class_bodies import class_bodies
from service.schemas import SessionBody, TaughtBody
from service.session_watch import seconds_to_next_poll
from store import classes, sessions
from store.catalogue import DEFAULT
from store.models import SessionId
from store.outages import is_outage

LONGEST_WAIT = 120
Prefer = Annotated[
    str | None, Header(description="`wait=N`: answer when refined, or after N seconds.", examples=["wait=30"])
]
TAUGHT: dict[int | str, dict[str, Any]] = {
    201: {"model": TaughtBody, "description": "Taught and refined: you asked to wait, and it was ready in time."}
}


def waiting_time(prefer: str | None) -> float:
    """Seconds of a `Prefer: wait=N` header; other preferences are ignored, as they may be."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})", prefer or "")
    return min(float(found.group(1)), LONGEST_WAIT) if found else 0.0


async def taught_response(context: AppContext, model: str, outcome: Outcome, seconds: float) -> Response:
    """The answer to a caller who taught: 202 at once, or 201 once it is refined, if that is in time."""
    prefix = "" if model == DEFAULT else f"/models/{model}"
    body = TaughtBody.model_validate(outcome.answer).model_dump(mode="json", by_alias=True)
    headers = {}
    if outcome.session_id is not None:
        headers["Location"] = f"{prefix}/sessions/{outcome.session_id}"
    waiters = context.session_watch.waiters
    if not seconds or outcome.session_id is None or waiters.full:  # to wait is a preference, not a right
        return JSONResponse(body, 202, headers)
    headers["Preference-Applied"] = f"wait={seconds:.0f}"
    try:
        with waiters.take():
            session = await _session_over(context, model, outcome.session_id, seconds)
        if session is None:
            return JSONResponse(body, 202, headers)
        if session.status != "succeeded":  # taught it is, and servable; refined it is not
            return JSONResponse({**body, "session": session.model_dump(mode="json")}, 202, headers)
        return JSONResponse(await run_sync(_as_refined, context, model, body, session), 201, headers)
    except Exception as error:
        if isinstance(error, Busy) or is_outage(error):  # it is taught all the same; ask for the session later
            return JSONResponse(body, 202, headers)
        raise


async def _session_over(context: AppContext, model: str, session_id: SessionId, seconds: float) -> SessionBody | None:
    """The session once it is over, if that is in time."""
    began = time.monotonic()
    model_id = (await run_sync(context.versions.active, model)).model_id
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not context.stopping:
                session = await context.session_watch.session((model_id, session_id))
                if session.status in sessions.FINISHED:
                    return session
                await asyncio.sleep(seconds_to_next_poll(time.monotonic() - began))
    return None


def _as_refined(context: AppContext, model: str, taught: dict[str, Any], session: SessionBody) -> dict[str, Any]:
    """The answer brought up to date: the session's outcome, the class, the active version."""
    active = context.versions.refresh(model)
    with context.database.read() as db:
        (body,) = class_bodies(db, active, [classes.get(db, active.model_id, taught["class"]["id"])])
    return {
        **taught,
        "class": body.model_dump(mode="json"),
        "session": session.model_dump(mode="json"),
        "version": active.number,
    }
