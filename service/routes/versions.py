"""`/versions`: the history of a model, and which version is active."""

from fastapi import APIRouter, Depends, Request

from service.auth import requires
from service.dependencies import Context, Cursor, Limit, ModelName, VersionInPath
from service.problems import responses
from service.request_middleware import request_id
from service.schemas import Page, VersionBody
from store import catalogue, versions

router = APIRouter(tags=["versions"])


@router.get(
    "/versions",
    response_model=Page[VersionBody],
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="List the versions",
)
def list_versions(context: Context, model: ModelName, cursor: Cursor, limit: Limit = 50) -> Page[VersionBody]:
    """Newest first."""
    with context.database.read() as db:
        row = catalogue.get(db, model)
        found = versions.page(db, row.id, before=cursor, limit=limit + 1)
    items = [VersionBody.of(version, row.head) for version in found[:limit]]
    return Page(items=items, next=str(items[-1].number) if len(found) > limit else None)


@router.get(
    "/versions/{number}",
    response_model=VersionBody,
    responses=responses(401, 403, 404, 422, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Show a version",
)
def show_version(context: Context, model: ModelName, number: VersionInPath) -> VersionBody:
    """Kind, parent, classes, accuracy, forgetting, the gate's verdict, and how *unknown* was calibrated."""
    with context.database.read() as db:
        row = catalogue.get(db, model)
        return VersionBody.of(versions.get(db, row.id, number), row.head)


@router.post(
    "/versions/{number}/activate",
    response_model=VersionBody,
    responses=responses(401, 403, 404, 409, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    summary="Roll back or forward",
)
async def activate(request: Request, context: Context, model: ModelName, number: VersionInPath) -> VersionBody:
    """Make a version the active one, on every replica. Deleted classes do not come back: if it knew some, a version
    without them is made, of kind `rollback`, and becomes active instead."""
    version = await context.teacher.activate(model, number, request_id(request) or "")
    return VersionBody.of(version, version.number)
