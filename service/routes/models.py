"""`/models`: several learners on one deployment."""

import asyncio

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request, Response

from core.classifier import Certainty
from core.errors import BackboneError
from service.app_context import AppContext
from service.auth import requires
from service.cancellation import while_wanted
from service.dependencies import Context, ModelName, named_model
from service.json_body import json_body, read_json
from service.problems import Problem, responses
from service.schemas import ModelBody, NewModel, Page
from store import catalogue, classes
from store.catalogue import DEFAULT
from store.errors import NameTaken
from store.names import model_name

router = APIRouter(prefix="/models", tags=["models"])


@router.get(
    "",
    response_model=Page[ModelBody],
    responses=responses(401, 403, 503),
    dependencies=[Depends(requires("predict"))],
    summary="List the models",
)
def list_models(context: Context) -> Page[ModelBody]:
    with context.database.read() as db:
        found = [ModelBody.of(row, classes.count(db, row.id)) for row in catalogue.everything(db)]
    return Page(items=found, next=None)


@router.post(
    "",
    status_code=201,
    response_model=ModelBody,
    responses=responses(400, 401, 403, 408, 409, 413, 415, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    openapi_extra={"requestBody": json_body(NewModel)},
    summary="Make a model",
)
async def create_model(request: Request, context: Context, response: Response) -> ModelBody:
    """A learner of its own, with no classes yet. All models on a backbone share its trunk."""
    body = await read_json(request, NewModel)
    name = model_name(body.name)
    backbone = body.backbone or context.settings.backbone
    await run_sync(_require_free, context, name)  # before a minute is spent on its backbone
    await _backbone_ready(request, context, backbone)
    created = await run_sync(_create, context, name, backbone)
    response.headers["Location"] = f"/models/{name}"
    return created


@router.get(
    "/{model}",
    response_model=ModelBody,
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict")), Depends(named_model)],
    summary="Show a model",
)
def show_model(context: Context, model: ModelName) -> ModelBody:
    with context.database.read() as db:
        row = catalogue.get(db, model)
        return ModelBody.of(row, classes.count(db, row.id))


@router.delete(
    "/{model}",
    status_code=204,
    responses=responses(401, 403, 404, 409, 422, 503, 507),
    dependencies=[Depends(requires("admin")), Depends(named_model)],
    summary="Delete a model",
)
def delete_model(context: Context, model: ModelName) -> Response:
    """With all its classes, images and versions, permanently."""
    if model == DEFAULT:
        detail = "the model 'default' answers the routes at the root and cannot be deleted; delete its classes instead"
        raise Problem(409, "The default model stays", detail, slug="conflict")
    with context.database.write() as db:
        catalogue.delete(db, model)
    context.versions.drop_deleted()
    context.notifier.model_changed(model)
    return Response(status_code=204)


async def _backbone_ready(request: Request, context: AppContext, backbone: str) -> None:
    """However many callers wait until it is prepared, none of them takes a thread; one that leaves gets no model."""
    longest = 2 * context.settings.prepare_seconds  # for another process to prepare it, and for our own
    try:
        await while_wanted(request, asyncio.wrap_future(context.backbones.load(backbone)), longest)
    except BackboneError as error:
        raise Problem(422, "The backbone cannot be used", str(error), slug="unknown-backbone") from error


def _require_free(context: AppContext, name: str) -> None:
    with context.database.read() as db:
        if catalogue.find(db, name) is not None:
            raise NameTaken(f"there is a model named '{name}' already")


def _create(context: AppContext, name: str, backbone: str) -> ModelBody:
    with context.database.write() as db:
        return ModelBody.of(catalogue.create(db, name, backbone, Certainty().temperature), 0)
