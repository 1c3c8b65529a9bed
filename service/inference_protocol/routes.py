"""`/v2`: health, metadata and inference of the Open Inference Protocol."""

from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from service.auth import requires
from service.dependencies import Context, ModelName, VersionInPath, context_of, model_of, named_model
from service.inference_protocol.errors import PREFIX, error_responses
from service.inference_protocol.reply import OUTPUTS, reply, top_k, wanted
from service.inference_protocol.request import HEAD_LENGTH, read_inference
from service.inference_protocol.schemas import (
    INPUT,
    REQUEST_BODY,
    InferenceResponse,
    Live,
    ModelMetadata,
    ModelReady,
    Ready,
    ServerMetadata,
    TensorMetadata,
)
from service.routes import health
from service.routes.predict import Query, answer, loaded_version
from store import catalogue, versions

router = APIRouter(prefix=PREFIX, tags=["open inference protocol"])

NAME = "protoquad"
INPUTS = [TensorMetadata(name=INPUT, datatype="BYTES", shape=[-1])]
VERSIONS_LISTED = 500  # the newest

_MAY_PREDICT = Depends(requires("predict"))
_OF_MODEL = [_MAY_PREDICT, Depends(named_model)]
_DESCRIBES: dict[str, Any] = {
    "response_model": ModelMetadata,
    "responses": error_responses(401, 403, 404, 409, 422, 503),
    "dependencies": _OF_MODEL,
}
_SAYS_READY: dict[str, Any] = {**_DESCRIBES, "response_model": ModelReady}
_INFERS: dict[str, Any] = {
    "response_model": None,
    "responses": {
        200: {"model": InferenceResponse, "content": {"application/octet-stream": {}}},
        **error_responses(401, 403, 404, 408, 409, 415, 422, 503),
    },
    "dependencies": _OF_MODEL,
    "openapi_extra": {
        "parameters": [
            {
                "name": HEAD_LENGTH,
                "in": "header",
                "required": False,
                "schema": {"type": "integer", "minimum": 1},
                "description": "How many bytes of the body are JSON; the images follow them as a binary tensor.",
            }
        ],
        "requestBody": REQUEST_BODY,
    },
}


@router.get("/health/live", response_model=Live, responses=error_responses(503), summary="Is the server live")
async def server_live(context: Context) -> Live:
    """As `/livez`."""
    await health.livez(context)
    return Live(live=True)


@router.get("/health/ready", response_model=Ready, responses=error_responses(503), summary="Is the server ready")
async def server_ready(context: Context) -> Ready:
    """As `/readyz`."""
    await health.readyz(context)
    return Ready(ready=True)


@router.get(
    "",
    response_model=ServerMetadata,
    responses=error_responses(401, 403, 503),
    dependencies=[_MAY_PREDICT],
    summary="Describe the server",
)
async def server_metadata(request: Request) -> ServerMetadata:
    return ServerMetadata(name=NAME, version=request.app.version, extensions=["binary_tensor_data"])


@router.get("/models/{model}", **_DESCRIBES, summary="Describe a model")
def model_metadata(context: Context, model: ModelName) -> ModelMetadata:
    """Its versions, its input and its outputs. Asks the database; an inference does not."""
    with context.database.read() as db:
        numbers = versions.servable_numbers(db, catalogue.get(db, model).id, limit=VERSIONS_LISTED)
    return _metadata(model, numbers)


@router.get("/models/{model}/versions/{version}", **_DESCRIBES, summary="Describe a version")
def version_metadata(context: Context, model: ModelName, version: VersionInPath) -> ModelMetadata:
    with context.database.read() as db:
        versions.servable(db, catalogue.get(db, model).id, version)
    return _metadata(model, [version])


@router.get("/models/{model}/ready", **_SAYS_READY, summary="Is a model ready")
async def model_ready(request: Request, model: ModelName) -> ModelReady:
    """Loads it if it is not in memory."""
    await loaded_version(request, model, None)
    return ModelReady(name=model, ready=True)


@router.get("/models/{model}/versions/{version}/ready", **_SAYS_READY, summary="Is a version ready")
async def version_ready(request: Request, model: ModelName, version: VersionInPath) -> ModelReady:
    """Loads it if it is not in memory."""
    await loaded_version(request, model, version)
    return ModelReady(name=model, ready=True)


@router.post("/models/{model}/infer", **_INFERS, summary="Infer")
async def infer(request: Request) -> Response:
    """What is on 1 to 64 images, as `POST /predict` answers it: label, class_id, confidence, unknown, distance."""
    return await _infer(request, None)


@router.post("/models/{model}/versions/{version}/infer", **_INFERS, summary="Infer with a version")
async def infer_with_version(request: Request, version: VersionInPath) -> Response:
    """As it did when it was active."""
    return await _infer(request, version)


async def _infer(request: Request, version: int | None) -> Response:
    model_of(request)  # a name that cannot be one is refused before the images are read
    head, uploads = await read_inference(request, max_images=context_of(request).settings.max_images)
    outputs = wanted(head)
    query = Query(top_k=top_k(head), version=version, views=head.parameters.views)
    return reply(head, outputs, await answer(request, uploads, query))


def _metadata(model: str, numbers: list[int]) -> ModelMetadata:
    named = [str(number) for number in numbers]
    return ModelMetadata(name=model, versions=named, platform=NAME, inputs=INPUTS, outputs=OUTPUTS)
