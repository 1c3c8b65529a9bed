"""`/inbox`: predicted images that were kept, for people to say what they show."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from learners.blobs import from_blob
from learners.likeness import groups_of
from service.app_context import AppContext
from service.auth import requires
from service.cancellation import while_wanted
from service.dependencies import Context, Limit, ModelName, SignedCursor
from service.image_answers import IMAGES, NOT_MODIFIED, THUMBNAIL, image_answer, thumbnail_answer
from service.image_fields import Upload, unusable
from service.inbox_schemas import InboxPage, Resolve, SampleBody
from service.json_body import json_body, read_json
from service.problems import responses
from service.request_middleware import request_id
from service.schemas import Candidate, TaughtBody
from service.taught_response import LONGEST_WAIT, TAUGHT, Prefer, taught_response, waiting_time
from store import catalogue, classes, samples
from store.models import ModelId
from store.names import class_name
from store.samples import SampleFacts

router = APIRouter(tags=["inbox"])

SampleNumber = Annotated[int, Path(description="Id of the sample.", examples=[858993459200], ge=0, lt=2**63)]
Sort = Annotated[
    Literal["margin", "newest"], Query(description="margin: the most uncertain first; newest: the newest first.")
]
_IMAGE: dict[int | str, dict[str, Any]] = {200: IMAGES, 304: NOT_MODIFIED, **responses(401, 403, 404, 422, 503)}


@router.get(
    "/inbox",
    response_model=InboxPage,
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("teach"))],
    summary="List the inbox",
)
def list_samples(
    context: Context, model: ModelName, cursor: SignedCursor, sort: Sort = "newest", limit: Limit = 50
) -> InboxPage:
    """Images that predictions have kept: see `PROTOQUAD_CAPTURE`."""
    with context.database.read() as db:
        model_id = catalogue.get(db, model).id
        found = samples.everything(db, model_id)
        names = classes.names(db, model_id)
    groups = dict(zip((one.id for one in found), _groups(found), strict=True))
    if sort == "margin":
        found.sort(key=lambda one: (one.margin, -one.id))
    start = next((place for place, one in enumerate(found, start=1) if one.id == cursor), 0)
    part = found[start : start + limit]
    items = [_body(one, names, groups[one.id]) for one in part]
    following = str(part[-1].id) if start + limit < len(found) else None
    return InboxPage(items=items, next=following, total=len(found), capture=context.settings.capture)


@router.get(
    "/inbox/{sample}/image",
    response_class=Response,
    responses=_IMAGE,
    dependencies=[Depends(requires("teach"))],
    summary="Get an image of the inbox",
)
def get_sample(request: Request, context: Context, model: ModelName, sample: SampleNumber) -> Response:
    """The bytes as they were sent."""
    facts, model_id = _facts(context, model, sample)
    return image_answer(request, facts.sha256, None, partial(_data, context, model_id, sample))


@router.get(
    "/inbox/{sample}/thumbnail",
    response_class=Response,
    responses={**_IMAGE, 200: THUMBNAIL},
    dependencies=[Depends(requires("teach"))],
    summary="Get a small form of an image of the inbox",
)
async def get_sample_thumbnail(request: Request, context: Context, model: ModelName, sample: SampleNumber) -> Response:
    """WebP; the longer side has at most 256 pixels."""
    facts, model_id = await run_sync(_facts, context, model, sample)
    return await thumbnail_answer(request, context, facts.sha256, partial(_data, context, model_id, sample))


@router.post(
    "/inbox/resolve",
    status_code=202,
    response_model=TaughtBody,
    responses={
        **TAUGHT,
        204: {"description": "They were dismissed."},
        **responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507),
    },
    dependencies=[Depends(requires("teach"))],
    openapi_extra={"requestBody": json_body(Resolve)},
    summary="Say what samples show",
)
async def resolve_samples(request: Request, context: Context, model: ModelName, prefer: Prefer = None) -> Response:
    """They become shots of a class (`class_id`) or of a new one (`name`), or are of no use (`dismiss`).

    Either way they leave the inbox, in the same transaction.
    """
    body, seconds = await read_json(request, Resolve), waiting_time(prefer)
    if len(body.choices) != 1:
        raise unusable("class_id", "say what to do with the samples: one of 'class_id', 'name' or 'dismiss'")
    chosen = list(dict.fromkeys(body.samples))
    model_id = await run_sync(_model_id, context, model)
    if body.dismiss:
        await run_sync(_dismiss, context, model_id, chosen)
        return Response(status_code=204)
    if len(chosen) > context.settings.max_shots:
        most = context.settings.max_shots
        raise unusable("samples", f"a class has at most {most} shots; resolve fewer samples", slug="too-many-images")
    uploads = [Upload(place, None, await run_sync(_data, context, model_id, one)) for place, one in enumerate(chosen)]
    taken = partial(samples.take, model_id=model_id, own_ids=chosen)
    teacher, own_id = context.teacher, request_id(request) or ""
    if body.name is not None:
        teaching = teacher.teach(model, class_name(body.name), uploads, own_id, also=taken)
    else:
        teaching = teacher.add_shots(model, body.class_id or 0, uploads, own_id, also=taken)
    outcome = await while_wanted(request, teaching, context.settings.answer_seconds)
    return await while_wanted(request, taught_response(context, model, outcome, seconds), 2 * LONGEST_WAIT)


@router.delete(
    "/inbox",
    status_code=204,
    responses=responses(401, 403, 404, 422, 503, 507),
    dependencies=[Depends(requires("teach"))],
    summary="Empty the inbox",
)
def empty_inbox(context: Context, model: ModelName) -> Response:
    """All its images are erased permanently."""
    with context.database.write() as db:
        samples.clear(db, catalogue.get(db, model).id)
    return Response(status_code=204)


def _model_id(context: AppContext, model: str) -> ModelId:
    with context.database.read() as db:
        return catalogue.get(db, model).id


def _facts(context: AppContext, model: str, sample: int) -> tuple[SampleFacts, ModelId]:
    with context.database.read() as db:
        model_id = catalogue.get(db, model).id
        return samples.get(db, model_id, sample), model_id


def _data(context: AppContext, model_id: ModelId, sample: int) -> bytes:
    with context.database.read() as db:
        return samples.data(db, model_id, sample)


def _dismiss(context: AppContext, model_id: ModelId, chosen: Sequence[int]) -> None:
    with context.database.write() as db:
        samples.take(db, model_id, chosen)


def _groups(found: Sequence[SampleFacts]) -> list[int | None]:
    """Features under different weights cannot be compared: only the newest weights are grouped."""
    weights = max((one.weights for one in found), default=0)
    comparable = [one for one in found if one.weights == weights]
    numbers = groups_of([from_blob(one.feature) for one in comparable])
    known = {one.id: number for one, number in zip(comparable, numbers, strict=True)}
    return [known.get(one.id) for one in found]


def _body(one: SampleFacts, names: dict[int, str], group: int | None) -> SampleBody:
    top = [Candidate(label=names.get(near["class_id"], f"class {near['class_id']}"), **near) for near in one.top["top"]]
    return SampleBody(
        id=one.id,
        created_at=one.created_at,
        version=one.version,
        label=top[0].label if top and not one.unknown else None,
        unknown=one.unknown,
        confidence=one.confidence,
        margin=one.margin,
        group=group,
        sha256=one.sha256,
        top=top,
    )
