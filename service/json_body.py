"""A small JSON body, read in the route itself: FastAPI would parse it before the caller's key is checked."""

from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from service.problems import Problem, shortened

Body = TypeVar("Body", bound=BaseModel)


async def read_json(request: Request, kind: type[Body]) -> Body:
    """The body as this kind of object; `service.limits` limits its size."""
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
        what = f"the body has the type '{shortened(content_type)}'" if content_type else "there is no Content-Type"
        raise Problem(
            415,
            "The type of the body is not accepted",
            f"{what}; send application/json",
            slug="unsupported-media-type",
        )
