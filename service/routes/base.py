"""`/base`: a base session from a zip of class folders, or from a folder that the operator has allowed."""

import hashlib
from io import BufferedRandom
from tempfile import TemporaryFile
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from learners.allowed_folders import read_allowed
from learners.base_job import zip_limits
from learners.base_queueing import BaseOrder
from learners.base_zip import opened_zip, require_readable
from learners.taught_answer import Idempotency, Outcome
from service.app_context import AppContext
from service.auth import requires
from service.dependencies import Context, IdempotencyKey, ModelName
from service.json_body import json_body, read_json
from service.large_bodies import alone, spool
from service.limits import expect_zip
from service.problems import Problem, responses, shortened
from service.request_middleware import request_id
from service.schemas import SessionBody
from store.catalogue import DEFAULT
from store.database import OWNER_ONLY_FOLDER
from store.errors import Conflict

router = APIRouter(tags=["sessions"])

ZIP = ("application/zip", "application/x-zip-compressed")  # the second: Windows
JSON = "application/json"


class BaseFolder(BaseModel):
    model_config = ConfigDict(extra="forbid")

    folder: str = Field(
        description="A folder of the service's machine and of the workers', in PROTOQUAD_BASE_FOLDERS.",
        examples=["/data/birds"],
        min_length=1,
        max_length=4096,
    )


BODY: dict[str, Any] = {
    "required": True,
    "content": {
        ZIP[0]: {"schema": {"type": "string", "format": "binary", "description": "One folder of images per class."}},
        **json_body(BaseFolder)["content"],
    },
}
Epochs = Annotated[
    int | None, Query(ge=0, le=10_000, description="How often training passes over all images; 0 keeps the weights.")
]


@router.post(
    "/base",
    status_code=202,
    response_model=SessionBody,
    responses=responses(400, 401, 403, 404, 408, 409, 413, 415, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    openapi_extra={"requestBody": BODY},
    summary="Start a base session",
)
async def start_base_session(
    request: Request, context: Context, model: ModelName, key: IdempotencyKey, epochs: Epochs = None
) -> JSONResponse:
    """Learn a model's first classes from many images. A worker does it; watch it as any session.

    Classes that the model was taught before are kept. A model learns from a base session once.
    """
    if key is None:  # before the whole body arrives; with a key, the answer may have been given before
        await run_sync(context.base_queue.require_possible, model)
    own_id = request_id(request) or ""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == JSON:
        folder = (await read_json(request, BaseFolder)).folder
        outcome = await run_sync(_from_folder, context, model, folder, epochs, key, own_id)
    elif kind in ZIP:
        with alone(context):
            expect_zip(request)
            with await run_sync(_unnamed_file, context) as file:
                await spool(request, file)
                outcome = await run_sync(_from_zip, context, model, file, epochs, key, own_id)
    else:
        raise _unsupported(kind)
    prefix = "" if model == DEFAULT else f"/models/{model}"
    body = SessionBody.model_validate(outcome.answer).model_dump(mode="json")
    return JSONResponse(body, 202, {"Location": f"{prefix}/sessions/{outcome.session_id}"})


def _unnamed_file(context: AppContext) -> BufferedRandom:
    """It is gone when it is closed, however the process ends."""
    room = context.settings.room
    room.mkdir(OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    return TemporaryFile(dir=room)


def _from_folder(
    context: AppContext, model: str, folder: str, epochs: int | None, key: str | None, own_id: str
) -> Outcome:
    idempotency = _idempotency(key, "folder", folder, epochs)
    known = context.base_queue.recall(model, idempotency) if idempotency else None
    if known is not None:
        return known
    context.base_queue.require_possible(model)
    order = BaseOrder(read_allowed(folder, context.settings), {"folder": folder, "epochs": epochs})
    return _enqueued(context, model, order, idempotency, own_id)


def _from_zip(
    context: AppContext, model: str, file: BufferedRandom, epochs: int | None, key: str | None, own_id: str
) -> Outcome:
    file.seek(0)
    idempotency = _idempotency(key, "zip", hashlib.file_digest(file, "sha256").hexdigest(), epochs)
    known = context.base_queue.recall(model, idempotency) if idempotency else None
    if known is not None:
        return known
    with opened_zip(file, zip_limits(context.settings)) as folders:
        context.base_queue.require_possible(model, [folder.name for folder in folders])
        require_readable(folders)
        return _enqueued(context, model, BaseOrder(folders, {"epochs": epochs}, file), idempotency, own_id)


def _enqueued(
    context: AppContext, model: str, order: BaseOrder, idempotency: Idempotency | None, own_id: str
) -> Outcome:
    try:
        return context.base_queue.enqueue(model, order, idempotency, own_id)
    except Conflict:  # perhaps with the same request, which another replica has answered since
        known = context.base_queue.recall(model, idempotency) if idempotency else None
        if known is None:
            raise
        return known


def _idempotency(key: str | None, kind: str, subject: str, epochs: int | None) -> Idempotency | None:
    content = "\0".join(["base", kind, subject, str(epochs)])
    return None if key is None else Idempotency(key, hashlib.sha256(content.encode("utf-8", "replace")).hexdigest())


def _unsupported(sent: str) -> Problem:
    what = f"the body has the type '{shortened(sent)}'" if sent else "there is no Content-Type"
    detail = f"{what}; send a zip as {ZIP[0]}, or a folder's path as {JSON}"
    headers = {"Accept-Post": f"{ZIP[0]}, {JSON}"}
    return Problem(415, "The type of the body is not accepted", detail, slug="unsupported-media-type", headers=headers)
