"""What a route may ask for: the app context, the model it acts on, a page, an idempotency key.

All of it is `async` although it waits for nothing: FastAPI would run each plain function in a thread, and none is free
while the database does not answer.
"""

import re
from typing import Annotated, Literal

from fastapi import Depends, Header, Path, Query, Request

from service.app_context import AppContext
from service.problems import Problem
from service.request_span import MODEL
from store.catalogue import DEFAULT
from store.class_pages import Sort, Wanted
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
    model = request.scope[MODEL] = model_of(request)
    return model


async def cursor(
    cursor: Annotated[str | None, Query(description="`next` of the page before.", max_length=20)] = None,
) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit()) or int(cursor) >= 2**31:
        raise _no_cursor(cursor)
    return int(cursor)


async def signed_cursor(
    cursor: Annotated[str | None, Query(description="`next` of the page before.", max_length=20)] = None,
) -> int | None:
    """Of lists whose items may have large or negative ids."""
    if cursor is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,18}", cursor):
        raise _no_cursor(cursor)
    return int(cursor)


def _no_cursor(cursor: str) -> Problem:
    detail = f"'{cursor}' is no cursor; take `next` of the page before as it is"
    return Problem(422, "The cursor cannot be used", detail, slug="invalid-parameter")


async def classes_wanted(
    search: Annotated[str, Query(description="Part of the name, in any case.", max_length=200)] = "",
    sort: Annotated[Sort, Query(description="What to sort by; classes that were not measured come last.")] = "created",
    order: Annotated[Literal["asc", "desc"], Query(description="In which direction.")] = "asc",
) -> Wanted:
    return Wanted(search, sort, order == "desc")


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
SignedCursor = Annotated[int | None, Depends(signed_cursor)]
ClassesWanted = Annotated[Wanted, Depends(classes_wanted)]
Limit = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="Items on a page.")]
IdempotencyKey = Annotated[str | None, Depends(idempotency_key)]
ClassNumber = Annotated[int, Path(description="Id of the class.", examples=[1], ge=0, lt=2**31)]
ImageNumber = Annotated[
    int, Path(description="Id of a shot, or, below zero, of a guard image.", examples=[1], gt=-(2**63), lt=2**63)
]
VersionInPath = Annotated[int, Path(description="Number of the version.", examples=[0], ge=0, lt=2**31)]
SessionInPath = Annotated[int, Path(description="Id of the session.", examples=[1], ge=0, lt=2**63)]
