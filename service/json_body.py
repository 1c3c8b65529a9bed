"""A small JSON body, read in the route itself: FastAPI would read and parse it before it knows who is calling."""

from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from service.errors import Problem, shortened

Body = TypeVar("Body", bound=BaseModel)


async def read_json(request: Request, kind: type[Body]) -> Body:
    """The body as this kind of object; `service.limits` bounds how large it may be."""
    _require_json(request.headers.get("content-type", ""))
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from error


def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """For a route's `openapi_extra={"requestBody": …}`."""
    return {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}


def _require_json(content_type: str) -> None:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json":
        sent = f"the body is sent as '{shortened(content_type)}'" if content_type else "the request has no Content-Type"
        raise Problem(
            415,
            "The body is of a type that is not accepted",
            f"{sent}; send application/json",
            slug="unsupported-media-type",
        )
