"""`/classes`: teach, list, rename, delete."""

from collections.abc import Mapping
from functools import partial

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request, Response
from sqlalchemy.orm import Session

from learners.correction import Correction
from learners.version_loader import LoadedVersion
from service.app_context import AppContext
from service.auth import requires
from service.cancellation import while_wanted
from service.class_bodies import class_bodies
from service.dependencies import ClassesWanted, ClassNumber, Context, Cursor, IdempotencyKey, Limit, ModelName
from service.json_body import json_body, read_json
from service.problems import responses
from service.request_middleware import request_id
from service.schemas import ClassBody, CountedPage, Merge, Rename, TaughtBody
from service.taught_response import LONGEST_WAIT, TAUGHT, Prefer, taught_response, waiting_time
from service.uploads import IMAGES_BODY, SHOTS_BODY, read_images, read_shots
from store import catalogue, class_pages, classes, measurements
from store.models import ClassRow
from store.names import class_name

router = APIRouter(tags=["classes"])


@router.post(
    "/classes",
    status_code=202,
    response_model=TaughtBody,
    responses={**TAUGHT, **responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507)},
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
    return await while_wanted(request, taught_response(context, model, outcome, seconds), 2 * LONGEST_WAIT)


@router.post(
    "/classes/{class_id}/shots",
    status_code=202,
    response_model=TaughtBody,
    responses={**TAUGHT, **responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507)},
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
    return await while_wanted(request, taught_response(context, model, outcome, seconds), 2 * LONGEST_WAIT)


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
        accuracy = partial(_accuracy, db, active)
        found = class_pages.page(db, model_id, wanted, after=cursor, limit=limit, accuracy=accuracy)
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


@router.post(
    "/classes/{class_id}/merge",
    status_code=202,
    response_model=TaughtBody,
    responses={**TAUGHT, **responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507)},
    dependencies=[Depends(requires("teach"))],
    openapi_extra={"requestBody": json_body(Merge)},
    summary="Merge a class into another",
)
async def merge_class(
    request: Request, context: Context, model: ModelName, class_id: ClassNumber, prefer: Prefer = None
) -> Response:
    """All images of this class become the other one's, and this class is deleted, in one version."""
    seconds = waiting_time(prefer)
    body = await read_json(request, Merge)
    merging = context.teacher.correct(model, Correction(class_id, into=body.into), request_id(request) or "")
    outcome = await while_wanted(request, merging, context.settings.answer_seconds)
    return await while_wanted(request, taught_response(context, model, outcome, seconds), 2 * LONGEST_WAIT)


def _accuracy(db: Session, active: LoadedVersion) -> Mapping[int, float]:
    return measurements.accuracy(db, active.model_id, active.number)


def _body_of(context: AppContext, active: LoadedVersion, row: ClassRow) -> ClassBody:
    with context.database.read() as db:
        (body,) = class_bodies(db, active, [row])
    return body
