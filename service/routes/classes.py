"""`/classes`: teach, list, rename, delete."""

import asyncio
import contextlib
import re
import time
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import JSONResponse

from engine.single_flight import Busy
from learners.taught_answer import Outcome
from learners.version_loader import LoadedVersion
from service.app_context import AppContext
from service.auth import requires
from service.cancellation import while_wanted
from service.class_bodies import class_bodies
from service.dependencies import ClassesWanted, ClassNumber, Context, Cursor, IdempotencyKey, Limit, ModelName
from service.json_body import json_body, read_json
from service.problems import responses
from service.request_middleware import request_id
from service.schemas import ClassBody, CountedPage, Rename, SessionBody, TaughtBody
from service.session_watch import seconds_to_next_poll
from service.uploads import IMAGES_BODY, SHOTS_BODY, read_images, read_shots
from store import catalogue, class_pages, classes, sessions
from store.catalogue import DEFAULT
from store.models import ClassRow, SessionId
from store.names import class_name
from store.outages import is_outage

router = APIRouter(tags=["classes"])

LONGEST_WAIT = 120
Prefer = Annotated[
    str | None, Header(description="`wait=N`: answer when refined, or after N seconds.", examples=["wait=30"])
]
_TAUGHT: dict[int | str, dict[str, Any]] = {
    201: {"model": TaughtBody, "description": "Taught and refined: you asked to wait, and it was ready in time."}
}


@router.post(
    "/classes",
    status_code=202,
    response_model=TaughtBody,
    responses={**_TAUGHT, **responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507)},
    dependencies=[Depends(requires("teach"))],
    openapi_extra={"requestBody": SHOTS_BODY},
    summary="Teach a class",
)
async def teach(
    request: Request, context: Context, model: ModelName, key: IdempotencyKey, prefer: Prefer = None
) -> Response:
    """Teach a class with 1 to 100 images; five are advised. It is servable when the answer arrives."""
    seconds = waiting_time(prefer)
    shots = await read_shots(request, max_images=context.settings.max_shots)
    teaching = context.teacher.teach(model, shots.name, shots.images, request_id(request) or "", key)
    outcome = await while_wanted(request, teaching, context.settings.answer_seconds)
    return await while_wanted(request, _answer(context, model, outcome, seconds), 2 * LONGEST_WAIT)


@router.post(
    "/classes/{class_id}/shots",
    status_code=202,
    response_model=TaughtBody,
    responses={**_TAUGHT, **responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507)},
    dependencies=[Depends(requires("teach"))],
    openapi_extra={"requestBody": IMAGES_BODY("shots")},
    summary="Add shots to a class",
)
async def add_shots(
    request: Request,
    context: Context,
    model: ModelName,
    class_id: ClassNumber,
    key: IdempotencyKey,
    prefer: Prefer = None,
) -> Response:
    """More shots of a class. One that lies far from the others is reported as an outlier, and still counts."""
    seconds = waiting_time(prefer)
    uploads = await read_images(request, field="shots", max_images=context.settings.max_shots)
    teaching = context.teacher.add_shots(model, class_id, uploads, request_id(request) or "", key)
    outcome = await while_wanted(request, teaching, context.settings.answer_seconds)
    return await while_wanted(request, _answer(context, model, outcome, seconds), 2 * LONGEST_WAIT)


@router.get(
    "/classes",
    response_model=CountedPage[ClassBody],
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="List the classes",
)
def list_classes(
    context: Context, model: ModelName, wanted: ClassesWanted, cursor: Cursor, limit: Limit = 50
) -> CountedPage[ClassBody]:
    """In the order in which they were taught, unless another is asked for."""
    active = context.versions.active(model)
    with context.database.read() as db:
        model_id = catalogue.get(db, model).id
        found = class_pages.page(db, model_id, wanted, after=cursor, limit=limit)
        items = class_bodies(db, active, found.rows)
    return CountedPage(items=items, next=str(items[-1].id) if found.more else None, total=found.total)


@router.get(
    "/classes/{class_id}",
    response_model=ClassBody,
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Show a class",
)
def show_class(context: Context, model: ModelName, class_id: ClassNumber) -> ClassBody:
    active = context.versions.active(model)
    with context.database.read() as db:
        (body,) = class_bodies(db, active, [classes.get(db, catalogue.get(db, model).id, class_id)])
    return body


@router.patch(
    "/classes/{class_id}",
    response_model=ClassBody,
    responses=responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507),
    dependencies=[Depends(requires("teach"))],
    openapi_extra={"requestBody": json_body(Rename)},
    summary="Rename a class",
)
async def rename_class(request: Request, context: Context, model: ModelName, class_id: ClassNumber) -> ClassBody:
    """Only the name changes: no new version."""
    body = await read_json(request, Rename)
    row, active = await context.teacher.rename(model, class_id, class_name(body.name))
    return await run_sync(_body_of, context, active, row)


@router.delete(
    "/classes/{class_id}",
    status_code=204,
    responses=responses(401, 403, 404, 422, 503, 507),
    dependencies=[Depends(requires("teach"))],
    summary="Delete a class",
)
async def delete_class(context: Context, model: ModelName, class_id: ClassNumber) -> Response:
    """The next version does not know it; its images are erased permanently."""
    await context.teacher.delete(model, class_id)
    return Response(status_code=204)


def _body_of(context: AppContext, active: LoadedVersion, row: ClassRow) -> ClassBody:
    with context.database.read() as db:
        (body,) = class_bodies(db, active, [row])
    return body


def waiting_time(prefer: str | None) -> float:
    """Seconds of a `Prefer: wait=N` header; other preferences are ignored, as they may be."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})", prefer or "")
    return min(float(found.group(1)), LONGEST_WAIT) if found else 0.0


async def _answer(context: AppContext, model: str, outcome: Outcome, seconds: float) -> Response:
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
