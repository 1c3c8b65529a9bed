"""`/whoami` and `/keys`: who a caller is, and who may call."""

from collections.abc import Sequence
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Path, Request, Response

from service.app_context import AppContext
from service.auth import KeyRing, key_of, requires, scopes_of
from service.dependencies import Context
from service.json_body import json_body, read_json
from service.people_schemas import KeyBody, NewKey, NewKeyBody, WhoAmI
from service.problems import Problem, responses
from service.schemas import Page
from store import api_keys
from store.names import class_name

router = APIRouter(tags=["people"])

KeyId = Annotated[str, Path(description="Id of the key: the part after `pq_`.", examples=["1a2b3c4d"], max_length=16)]


@router.get(
    "/whoami",
    response_model=WhoAmI,
    responses=responses(401, 403, 503),
    dependencies=[Depends(requires("predict"))],
    summary="Show your own key",
)
async def whoami(request: Request) -> WhoAmI:
    """What the key of this request may do. Where no key was ever made, everything is allowed, from this machine."""
    known = key_of(request)
    return WhoAmI(
        key_id=known.id if known else None,
        name=known.name if known else None,
        scopes=scopes_of(known),
        keys_required=known is not None,
    )


@router.get(
    "/keys",
    response_model=Page[KeyBody],
    responses=responses(401, 403, 503),
    dependencies=[Depends(requires("admin"))],
    summary="List the keys",
)
def list_keys(context: Context) -> Page[KeyBody]:
    """All of them, revoked ones too; never the secret."""
    with context.database.read() as db:
        return Page(items=[KeyBody.of(row) for row in api_keys.everything(db)], next=None)


@router.post(
    "/keys",
    status_code=201,
    response_model=NewKeyBody,
    responses=responses(400, 401, 403, 408, 409, 413, 415, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    openapi_extra={"requestBody": json_body(NewKey)},
    summary="Make a key",
)
async def create_key(request: Request, context: Context, response: Response) -> NewKeyBody:
    """The answer is the only place where the key is shown. The first key ends open access, so it must have `admin`."""
    body = await read_json(request, NewKey)
    ring: KeyRing = request.app.state.keyring
    if ring.open and "admin" not in body.scopes:
        detail = "the first key ends open access, and nobody could make another; give it the scope 'admin'"
        raise Problem(409, "The first key needs the scope admin", detail, slug="conflict")
    made = await run_sync(_create, context, class_name(body.name), body.scopes)
    await run_sync(ring.refresh)
    response.headers["Location"] = "/keys"
    response.headers["Cache-Control"] = "no-store"
    return made


@router.delete(
    "/keys/{key_id}",
    status_code=204,
    responses=responses(401, 403, 404, 422, 503, 507),
    dependencies=[Depends(requires("admin"))],
    summary="Revoke a key",
)
def revoke_key(request: Request, context: Context, key_id: KeyId) -> Response:
    """For good. Every replica refuses it within a second, and ends the event streams that were opened with it."""
    with context.database.write() as db:
        api_keys.revoke(db, key_id)
    request.app.state.keyring.refresh()
    return Response(status_code=204)


def _create(context: AppContext, name: str, scopes: Sequence[str]) -> NewKeyBody:
    with context.database.write() as db:
        key = api_keys.create(db, name, scopes)
        row = api_keys.get(db, api_keys.key_id(key) or "")
        return NewKeyBody(**KeyBody.of(row).model_dump(), key=key)
