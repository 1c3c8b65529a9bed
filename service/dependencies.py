"""What a route may ask for: the app context, the model it acts on, a page, an idempotency key.

All of it is `async` although it waits for nothing: FastAPI would run each plain function in a thread, and none is free
while the database does not answer.
"""

from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request

from service.app_context import AppContext
from service.problems import Problem
from store.catalogue import DEFAULT
from store.names import model_name

MAX_ITEMS = 500


def context_of(request: Request) -> AppContext:
    found: AppContext = request.app.state.context
    return found


async def app_context(request: Request) -> AppContext:
    return context_of(request)


async def named_model(
    model: Annotated[str, Path(description="Name of the model.", examples=["birds"], max_length=63)],
) -> str:
    return model


def model_of(request: Request) -> str:
    """The model in the path, or the default one."""
    name = request.path_params.get("model", DEFAULT)
    return model_name(str(name))


async def chosen_model(request: Request) -> str:
    return model_of(request)


async def cursor(
    cursor: Annotated[str | None, Query(description="`next` of the page before.", max_length=20)] = None,
) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit()) or int(cursor) >= 2**31:
        detail = f"'{cursor}' is no cursor; take `next` of the page before as it is"
        raise Problem(422, "The cursor cannot be used", detail, slug="invalid-parameter")
    return int(cursor)


async def idempotency_key(
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="Any text of your own: the same key and content again get the same answer, for a day.",
            min_length=1,
            max_length=200,
        ),
    ] = None,
) -> str | None:
    return key


Context = Annotated[AppContext, Depends(app_context)]
ModelName = Annotated[str, Depends(chosen_model)]
Cursor = Annotated[int | None, Depends(cursor)]
Limit = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="Items on a page.")]
IdempotencyKey = Annotated[str | None, Depends(idempotency_key)]
ClassNumber = Annotated[int, Path(description="Id of the class.", examples=[1], ge=0, lt=2**31)]
VersionInPath = Annotated[int, Path(description="Number of the version.", examples=[0], ge=0, lt=2**31)]
SessionInPath = Annotated[int, Path(description="Id of the session.", examples=[1], ge=0, lt=2**63)]
