"""`/predict`: images in, labels out. No database on the way.

Measured by its throughput, so this route does by hand what FastAPI would do for it: FastAPI takes longer to fill in the
parameters than to find the images in the form. The OpenAPI document is the same.
"""

import asyncio
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from core.classifier import Prediction
from core.images import MAX_VIEWS
from learners.version_loader import LoadedVersion
from service.auth import requires
from service.cancellation import while_wanted
from service.dependencies import context_of, model_of
from service.engine_spans import watch_of_request
from service.explaining import neighbours
from service.problems import responses
from service.request_middleware import note
from service.schemas import PredictionsBody
from service.uploads import IMAGES_BODY, Upload, read_images

router = APIRouter(tags=["predict"])

DIGITS = 6  # of a confidence or distance; what follows is rounding of the hardware
VIEWS = (
    "How many views of each image to look at: 1 is its centre; 2 adds the mirror image; more add other crops. A view "
    "costs as much as an image, and counts as one where images wait."
)


class Query(BaseModel):
    top_k: Annotated[int, Field(ge=1, le=100, description="How many of the nearest classes to list.")] = 5
    version: Annotated[int | None, Field(ge=0, lt=2**31, description="A version other than the active one.")] = None
    views: Annotated[int, Field(ge=1, le=MAX_VIEWS, description=VIEWS)] = 1
    explain: Annotated[bool, Field(description="List the nearest stored shots, to see why; asks the database.")] = False


NO_QUERY = Query()


def _parameters() -> list[dict[str, Any]]:
    """The fields of Query as OpenAPI describes parameters."""
    return [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": schema["description"]}
        for name, schema in Query.model_json_schema()["properties"].items()
    ]


@router.post(
    "/predict",
    response_model=None,
    responses={
        200: {"model": PredictionsBody},
        **responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503),
    },
    dependencies=[Depends(requires("predict"))],
    openapi_extra={"parameters": _parameters(), "requestBody": IMAGES_BODY("images")},
    summary="Predict",
)
async def predict(request: Request) -> Response:
    """What is on 1 to 64 images. Where an image is like nothing that was taught, `unknown` is true."""
    model_of(request)  # a name that cannot be one is refused before the images are read
    query = _query(request)
    uploads = await read_images(request, field="images", max_images=context_of(request).settings.max_images)
    body = await answer(request, uploads, query)
    # JSON has no NaN. The body is not validated: a test compares it with its documented model.
    return Response(to_json(body, inf_nan_mode="null"), media_type="application/json")


async def answer(request: Request, uploads: Sequence[Upload], query: Query) -> dict[str, Any]:
    """As `PredictionsBody` documents it; it may have numbers that are not finite."""
    context, model = context_of(request), model_of(request)
    version = await loaded_version(request, model, query.version)
    note(model=model, version=version.number, images=len(uploads), views=query.views)
    looks_closer = context.capture is not None or query.explain
    answering = context.seeing.of(version) if looks_closer else version
    watch = watch_of_request(len(uploads))
    predicting = asyncio.wrap_future(context.predictor.predict(answering, uploads, query.top_k, query.views, watch))
    predictions = await while_wanted(request, predicting, context.settings.answer_seconds)
    unknown = sum(prediction.unknown for prediction in predictions)
    context.metrics.predicted(version.model, known=len(predictions) - unknown, unknown=unknown)
    names = context.versions.newest_names(version)
    body = {
        "model": model,
        "version": version.number,
        "predictions": [_body(prediction, version, names) for prediction in predictions],
    }
    if looks_closer:
        await _look_closer(request, version, query, uploads, predictions, body)
    return body


async def _look_closer(
    request: Request,
    version: LoadedVersion,
    query: Query,
    uploads: Sequence[Upload],
    predictions: Sequence[Prediction],
    body: dict[str, Any],
) -> None:
    """Add to the body what was asked for beyond the answer, and offer the images to the inbox."""
    context = context_of(request)
    if context.capture is not None:
        active = query.version is None  # what another version makes of an image is a question, not a use
        kept = context.capture.offer(version, uploads, predictions) if active else [None] * len(predictions)
        for one, sample_id in zip(body["predictions"], kept, strict=True):
            one["sample_id"] = sample_id
    if query.explain:
        finding = neighbours(context, version, predictions)
        found = await while_wanted(request, finding, context.settings.answer_seconds)
        for one, near in zip(body["predictions"], found, strict=True):
            one["neighbours"] = near


def _query(request: Request) -> Query:
    if not request.scope["query_string"]:
        return NO_QUERY
    try:
        return Query.model_validate(dict(request.query_params))
    except ValidationError as error:
        found = [{**one, "loc": ("query", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from error


async def loaded_version(request: Request, model: str, number: int | None) -> LoadedVersion:
    """The active version, or the one of this number, which may have to be loaded."""
    context = context_of(request)
    ready = context.versions.ready(model, number)
    if ready is not None:
        return ready
    loading = context.versions.load(model, number)  # the database has to be asked
    return await while_wanted(request, loading, context.settings.answer_seconds)


def _body(prediction: Prediction, version: LoadedVersion, names: Mapping[int, str]) -> dict[str, Any]:
    """As `PredictionBody` documents it."""
    top = [
        {
            "label": names.get(candidate.class_id) or version.name(candidate.class_id),
            "class_id": candidate.class_id,
            "confidence": round(candidate.confidence, DIGITS),
            "distance": round(candidate.distance, DIGITS),
        }
        for candidate in prediction.top
    ]
    known = not prediction.unknown
    return {
        "label": top[0]["label"] if known else None,
        "class_id": top[0]["class_id"] if known else None,
        "confidence": top[0]["confidence"] if top else 0.0,
        "unknown": prediction.unknown,
        "limit": round(prediction.limit, DIGITS) if isfinite(prediction.limit) else None,
        "top": top,
    }
