"""`/classes/{class_id}/shots`: the stored images of a class, one by one."""

from functools import partial
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request, Response

from learners.correction import Correction
from service.app_context import AppContext
from service.auth import requires
from service.cancellation import while_wanted
from service.class_bodies import shot_bodies
from service.dependencies import ClassNumber, Context, ImageNumber, Limit, ModelName, SignedCursor
from service.image_answers import IMAGES, NOT_MODIFIED, THUMBNAIL, image_answer, thumbnail_answer
from service.image_fields import unusable
from service.json_body import json_body, read_json
from service.problems import responses
from service.request_middleware import request_id
from service.schemas import CountedPage, Move, ShotBody, TaughtBody
from service.taught_response import LONGEST_WAIT, TAUGHT, Prefer, taught_response, waiting_time
from store import catalogue, classes, images
from store.images import ImageFacts
from store.names import class_name

router = APIRouter(tags=["shots"])

Digest = Annotated[
    str | None,
    Query(description="The image's digest: the answer may then be kept for ever.", pattern="^[0-9a-f]{64}$"),
]
_IMAGE: dict[int | str, dict[str, Any]] = {200: IMAGES, 304: NOT_MODIFIED, **responses(401, 403, 404, 422, 503)}
_THUMBNAIL: dict[int | str, dict[str, Any]] = {**_IMAGE, 200: THUMBNAIL}


@router.get(
    "/classes/{class_id}/shots",
    response_model=CountedPage[ShotBody],
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="List the images of a class",
)
def list_shots(
    context: Context, model: ModelName, class_id: ClassNumber, cursor: SignedCursor, limit: Limit = 50
) -> CountedPage[ShotBody]:
    """Its shots in the order in which they came, then guard images. Of a base class only guard images are stored."""
    active = context.versions.active(model)
    with context.database.read() as db:
        model_id = catalogue.get(db, model).id
        classes.get(db, model_id, class_id)
        found = images.page(db, model_id, class_id, after=cursor, limit=limit + 1)
        total = images.count(db, model_id, class_id)
        items = shot_bodies(db, active, class_id, found[:limit])
    return CountedPage(items=items, next=str(items[-1].id) if len(found) > limit else None, total=total)


@router.get(
    "/classes/{class_id}/shots/{shot}",
    response_model=ShotBody,
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Show an image of a class",
)
def show_shot(context: Context, model: ModelName, class_id: ClassNumber, shot: ImageNumber) -> ShotBody:
    active, facts = context.versions.active(model), _facts(context, model, class_id, shot)
    with context.database.read() as db:
        (body,) = shot_bodies(db, active, class_id, [facts])
    return body


@router.get(
    "/classes/{class_id}/shots/{shot}/image",
    response_class=Response,
    responses=_IMAGE,
    dependencies=[Depends(requires("predict"))],
    summary="Get an image of a class",
)
def get_image(
    request: Request,
    context: Context,
    model: ModelName,
    class_id: ClassNumber,
    shot: ImageNumber,
    sha256: Digest = None,  # noqa: ARG001  # `image_answer` looks at it
) -> Response:
    """The bytes as they were sent. With `?sha256=` the answer is immutable, otherwise it has to be asked for again."""
    facts = _facts(context, model, class_id, shot)
    return image_answer(request, facts.sha256, facts.filename, partial(_data, context, shot))


@router.get(
    "/classes/{class_id}/shots/{shot}/thumbnail",
    response_class=Response,
    responses=_THUMBNAIL,
    dependencies=[Depends(requires("predict"))],
    summary="Get a small form of an image",
)
async def get_thumbnail(
    request: Request,
    context: Context,
    model: ModelName,
    class_id: ClassNumber,
    shot: ImageNumber,
    sha256: Digest = None,  # noqa: ARG001
) -> Response:
    """WebP; the longer side has at most 256 pixels. Made once and kept in memory."""
    facts = await run_sync(_facts, context, model, class_id, shot)
    return await thumbnail_answer(request, context, facts.sha256, partial(_small_form, context, shot))


@router.delete(
    "/classes/{class_id}/shots/{shot}",
    status_code=202,
    response_model=TaughtBody,
    responses={**TAUGHT, **responses(401, 403, 404, 409, 422, 503, 507)},
    dependencies=[Depends(requires("teach"))],
    summary="Delete a shot",
)
async def delete_shot(
    request: Request,
    context: Context,
    model: ModelName,
    class_id: ClassNumber,
    shot: ImageNumber,
    prefer: Prefer = None,
) -> Response:
    """The next version knows the class without it; the image is erased permanently. Not the last shot of a class."""
    return await _corrected(request, context, model, Correction(class_id, shot), prefer)


@router.post(
    "/classes/{class_id}/shots/{shot}/move",
    status_code=202,
    response_model=TaughtBody,
    responses={**TAUGHT, **responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507)},
    dependencies=[Depends(requires("teach"))],
    openapi_extra={"requestBody": json_body(Move)},
    summary="Move a shot to another class",
)
async def move_shot(
    request: Request,
    context: Context,
    model: ModelName,
    class_id: ClassNumber,
    shot: ImageNumber,
    prefer: Prefer = None,
) -> Response:
    """To a class that exists (`to`), or to a new one (`to_new`), in one version. The answer is about that class."""
    body = await read_json(request, Move)
    if (body.to is None) == (body.to_new is None):
        raise unusable(
            "to", "say where the shot goes: either 'to', the id of a class, or 'to_new', the name of a new one"
        )
    into = class_name(body.to_new) if body.to_new is not None else body.to
    return await _corrected(request, context, model, Correction(class_id, shot, into), prefer)


async def _corrected(
    request: Request, context: AppContext, model: str, correction: Correction, prefer: str | None
) -> Response:
    seconds = waiting_time(prefer)
    correcting = context.teacher.correct(model, correction, request_id(request) or "")
    outcome = await while_wanted(request, correcting, context.settings.answer_seconds)
    return await while_wanted(request, taught_response(context, model, outcome, seconds), 2 * LONGEST_WAIT)


def _facts(context: AppContext, model: str, class_id: int, shot: int) -> ImageFacts:
    with context.database.read() as db:
        model_id = catalogue.get(db, model).id
        classes.get(db, model_id, class_id)
        return images.get(db, model_id, class_id, shot)


def _data(context: AppContext, shot: int) -> bytes:
    with context.database.read() as db:
        return images.data(db, shot)


def _small_form(context: AppContext, shot: int) -> bytes:
    with context.database.read() as db:
        return images.small_form(db, shot)
