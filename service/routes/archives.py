"""`/models/{model}/export` and `/models/import`: a model as one file, over HTTP. One at a time: they are heavy."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from core.errors import BackboneError
from learners.archive_export import exported
from learners.archive_import import checked
from service.app_context import AppContext
from service.auth import requires
from service.dependencies import Context, ModelName, named_model
from service.large_bodies import CHUNK, alone, spool
from service.limits import expect_images
from service.problems import Problem, responses, shortened
from service.schemas import ModelBody
from store import archive, catalogue, classes
from store.errors import NameTaken, SchemaMismatch, UnusableArchive
from store.names import model_name

router = APIRouter(prefix="/models", tags=["models"])

ARCHIVE = "application/octet-stream"
BODY = {
    "required": True,
    "content": {ARCHIVE: {"schema": {"type": "string", "format": "binary", "description": "What an export wrote."}}},
}
NewName = Annotated[
    str | None, Query(description="Name it here; its own name unless set.", max_length=63, examples=["birds"])
]


@router.get(
    "/{model}/export",
    response_class=StreamingResponse,
    responses={
        200: {"content": {ARCHIVE: {}}, "description": "The archive."},
        **responses(401, 403, 404, 422, 503, 507),
    },
    dependencies=[Depends(requires("admin")), Depends(named_model)],
    summary="Export a model",
)
async def export_model(context: Context, model: ModelName) -> StreamingResponse:
    """A model with all its versions, classes and images in one file, as `protoquad export` writes it."""
    with alone(context):
        file = await run_sync(_export, context, model)
    size = os.fstat(file.fileno()).st_size
    headers = {"Content-Disposition": f'attachment; filename="{model}.pq"', "Content-Length": str(size)}
    return StreamingResponse(_chunks(file), media_type=ARCHIVE, headers=headers)


@router.post(
    "/import",
    status_code=201,
    response_model=ModelBody,
    responses=responses(400, 401, 403, 408, 409, 413, 415, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    openapi_extra={"requestBody": BODY},
    summary="Import a model",
)
async def import_model(request: Request, context: Context, response: Response, name: NewName = None) -> ModelBody:
    """The archive is checked whole before anything of it is stored. Import one that is too large for a request with
    `protoquad import`."""
    _require_archive(request.headers.get("content-type", ""))
    wanted = None if name is None else model_name(name)
    with alone(context):
        folder = await run_sync(_folder, context)
        try:
            path = Path(folder.name) / "archive"
            expect_images(request)
            with await run_sync(path.open, "wb") as file:
                await spool(request, file)
            arrived = await run_sync(_import, context, path, wanted)
        finally:
            await run_sync(folder.cleanup)
    response.headers["Location"] = f"/models/{arrived.name}"
    return arrived


def _export(context: AppContext, model: str) -> BinaryIO:
    """Open, and without a name any more: it is gone when it is closed, whatever becomes of its reader."""
    context.settings.home.mkdir(parents=True, exist_ok=True)
    with exported(context.database, model, context.settings.home) as path:
        return path.open("rb")


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    try:
        while chunk := await run_sync(file.read, CHUNK):
            yield chunk
    finally:
        file.close()


def _folder(context: AppContext) -> "TemporaryDirectory[str]":
    context.settings.home.mkdir(parents=True, exist_ok=True)
    return TemporaryDirectory(dir=context.settings.home, prefix=".protoquad-import-")


def _import(context: AppContext, path: Path, wanted: str | None) -> ModelBody:
    try:
        label = archive.label(path)
        _require_free(context, wanted or label.model)
        with checked(path, context.settings) as found:
            context.backbones.load(label.backbone).result()
            row = archive.read(found.path, context.database, wanted or found.model)
    except (UnusableArchive, SchemaMismatch) as error:
        detail = str(error).replace(str(path), "the archive")
        raise Problem(422, "The archive cannot be imported", detail, slug="invalid-archive") from error
    except BackboneError as error:
        raise Problem(422, "The backbone cannot be used", str(error), slug="unknown-backbone") from error
    with context.database.read() as db:
        return ModelBody.of(row, classes.count(db, row.id))


def _require_free(context: AppContext, name: str) -> None:
    with context.database.read() as db:
        if catalogue.find(db, name) is not None:
            raise NameTaken(f"there is a model named '{name}' already; give this one another name with ?name=")


def _require_archive(content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() != ARCHIVE:
        what = f"the body has the type '{shortened(content_type)}'" if content_type else "there is no Content-Type"
        detail = f"{what}; send the archive as {ARCHIVE}"
        raise Problem(415, "The type of the body is not accepted", detail, slug="unsupported-media-type")
