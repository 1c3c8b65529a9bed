"""`/predict`: pictures in, labels out; no database on the way."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic_core import to_json
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send
from torch import Tensor

from core.classifier import Prediction
from core.images import centre_view, stacked
from engine.decoding import Look, hand_over
from engine.version_cache import LoadedVersion, Nearest
from service.auth import requires
from service.cancellation import while_wanted
from service.dependencies import AppContext, context_of, model_of
from service.problems import responses
from service.request_middleware import note
from service.schemas import PredictionsBody
from service.uploads import IMAGES_BODY, Upload, read_images

router = APIRouter(tags=["predict"])

TopK = Annotated[int, Query(ge=1, le=100, description="How many of the nearest classes to list.")]
Pinned = Annotated[int | None, Query(ge=0, lt=2**31, description="A version other than the one in force.")]
DIGITS = 6  # of a confidence or distance; beyond them lies the rounding of the hardware


@router.post(
    "/predict",
    response_model=PredictionsBody,
    responses=responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503),
    dependencies=[Depends(requires("predict"))],
    openapi_extra={"requestBody": IMAGES_BODY("images")},
    summary="Predict",
)
async def predict(request: Request, top_k: TopK = 5, version: Pinned = None) -> Response:
    """What is on 1 to 64 pictures. Where a picture is like nothing that was taught, `unknown` is true."""
    service, model = context_of(request), model_of(request)  # by hand: dependencies cost more, and this must be quick
    uploads = await read_images(request, field="images", max_images=service.settings.max_images)
    served = service.version_cache.ready(model, version)
    if served is None:  # the database has to be asked
        loading = service.version_cache.loaded(model, version)
        served = await while_wanted(request, loading, service.settings.answer_seconds)
    note(model=model, version=served.number, images=len(uploads))
    answers = await while_wanted(request, _submitted(service, served, uploads, top_k), service.settings.answer_seconds)
    unknown = sum(answer.unknown for answer in answers)
    service.metrics.predicted(served.model, known=len(answers) - unknown, unknown=unknown)
    names = service.version_cache.newest_names(served)
    body = {
        "model": model,
        "version": served.number,
        "predictions": [_body(answer, served, names) for answer in answers],
    }
    # Of our own making, so it is not checked on its way out. What is not a number has no place in JSON.
    return Response(to_json(body, inf_nan_mode="null"), media_type="application/json")


def _submitted(
    service: AppContext, served: LoadedVersion, uploads: Sequence[Upload], top_k: int
) -> "asyncio.Future[list[Prediction]]":
    """The answers to come; who cancels them has no more of the images decoded or seen."""
    framing, max_pixels = served.network.framing, service.settings.max_pixels
    nearest, batcher = Nearest(served, top_k), service.batcher
    job = batcher.admit(served.network, len(uploads), nearest, together=nearest.together)

    look = Look(framing.short_side, max_pixels, lambda image, _: centre_view(image, framing))

    def start(pictures: list[Tensor]) -> None:
        batcher.start(job, stacked(pictures))  # (n, 3, s, s)

    hand_over(uploads, look, start, job)
    return asyncio.wrap_future(job)


def _body(answer: Prediction, served: LoadedVersion, names: Mapping[int, str]) -> dict[str, Any]:
    """As `PredictionBody` says."""
    top = [
        {
            "label": names.get(found.class_id) or served.name(found.class_id),
            "class_id": found.class_id,
            "confidence": round(found.confidence, DIGITS),
            "distance": round(found.distance, DIGITS),
        }
        for found in answer.top
    ]
    known = not answer.unknown
    return {
        "label": top[0]["label"] if known else None,
        "class_id": top[0]["class_id"] if known else None,
        "confidence": top[0]["confidence"] if top else 0.0,
        "unknown": answer.unknown,
        "top": top,
    }


class PlainPrediction(Route):
    """A prediction without a query, about which there is nothing to find out but whether it may pass.

    Stands before FastAPI's own route, which would answer the same: it takes longer to get there than to read the
    picture out of the form. Whatever else that route depends on has to be asked for here too.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, predict, methods=["POST"], include_in_schema=False)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["query_string"]:
            return Match.NONE, {}
        match, found = super().matches(scope)
        return (match, {**found, "route": self}) if match is Match.FULL else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        await requires("predict")(request)
        response = await predict(request)
        await response(scope, receive, send)


PLAIN = [PlainPrediction("/predict"), PlainPrediction("/models/{model}/predict")]
