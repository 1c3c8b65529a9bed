"""`/predict`: pictures in, labels out; no database on the way."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute
from torch import Tensor

from core.classifier import Prediction
from core.images import centre_view, decode, stacked
from service.auth import requires
from service.decoding import hand_over
from service.dependencies import Parts, model_of, parts_of
from service.engine.shelf import Nearest, Served
from service.errors import responses
from service.request_log import note
from service.schemas import Candidate, PredictionBody, PredictionsBody
from service.uploads import PICTURES_BODY, Upload, read_pictures


class PlainRoute(APIRoute):
    """Without a query there is nothing to find out about a request but whether it may pass.

    FastAPI takes a fifth of a millisecond for it all the same, which is half of what it takes for a request.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        find_out = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if request.scope["query_string"]:
                return await find_out(request)
            await requires("predict")(request)
            return await predict(request)

        return handle


router = APIRouter(tags=["predict"], route_class=PlainRoute)

TopK = Annotated[int, Query(ge=1, le=100, description="How many of the nearest classes to list.")]
Pinned = Annotated[int | None, Query(ge=0, lt=2**31, description="A version other than the one in force.")]
DIGITS = 6  # of a confidence or distance; beyond them lies the rounding of the hardware


@router.post(
    "/predict",
    response_model=PredictionsBody,
    responses=responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503),
    dependencies=[Depends(requires("predict"))],
    openapi_extra={"requestBody": PICTURES_BODY("images")},
    summary="Predict",
)
async def predict(request: Request, top_k: TopK = 5, version: Pinned = None) -> Response:
    """What is on 1 to 64 pictures. Where a picture is like nothing that was taught, `unknown` is true."""
    service, model = parts_of(request), model_of(request)  # by hand: dependencies cost more, and this must be quick
    uploads = await read_pictures(request, field="images", max_images=service.settings.max_images)
    served = service.shelf.ready(model, version)
    if served is None:  # the database has to be asked
        served = await run_sync(service.shelf.at, model, version)
    note(model=model, version=served.number, images=len(uploads))
    answers = await _predictions(service, served, uploads, top_k)
    names = service.shelf.newest_names(served)
    body = PredictionsBody(
        model=model, version=served.number, predictions=[_body(answer, served, names) for answer in answers]
    )
    return Response(body.model_dump_json(), media_type="application/json")  # checked once, not again on its way out


async def _predictions(service: Parts, served: Served, uploads: Sequence[Upload], top_k: int) -> list[Prediction]:
    framing, max_pixels = served.network.framing, service.settings.max_pixels
    nearest, batcher = Nearest(served, top_k), service.batcher
    job = batcher.admit(served.network, len(uploads), nearest, together=nearest.together)

    def look(data: bytes) -> Tensor:
        return centre_view(decode(data, short_side=framing.short_side, max_pixels=max_pixels), framing)

    def start(pictures: list[Tensor]) -> None:
        batcher.start(job, stacked(pictures))  # (n, 3, s, s)

    hand_over(uploads, look, start, job)
    answers: list[Prediction] = await asyncio.wrap_future(job)
    unknown = sum(answer.unknown for answer in answers)
    service.metrics.predicted(served.model, known=len(answers) - unknown, unknown=unknown)
    return answers


def _body(answer: Prediction, served: Served, names: Mapping[int, str]) -> PredictionBody:
    top = [
        Candidate(
            label=names.get(found.class_id) or served.name(found.class_id),
            class_id=found.class_id,
            confidence=round(found.confidence, DIGITS),
            distance=round(found.distance, DIGITS),
        )
        for found in answer.top
    ]
    known = None if answer.unknown else top[0]
    return PredictionBody(
        label=known.label if known else None,
        class_id=known.class_id if known else None,
        confidence=top[0].confidence if top else 0.0,
        unknown=answer.unknown,
        top=top,
    )
