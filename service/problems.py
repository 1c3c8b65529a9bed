"""Errors as RFC 9457 problems: the JSON of an answer, and its description in the OpenAPI document."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Response
from pydantic import BaseModel, Field

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
CLIENT_GONE = 499  # as in nginx's log: the client left before it was answered
LONGEST_ECHO = 200  # characters of a caller's own text that an answer repeats


class ImageProblem(BaseModel):
    """One image that cannot be used."""

    index: int = Field(description="Which image of the request, counted from 0.")
    filename: str | None = Field(None, description="Its file name, if the request gave one.")
    reason: str


class ParameterProblem(BaseModel):
    """One parameter or field that cannot be used."""

    where: str = Field(description="Which one, such as `query top_k` or `body name`.")
    reason: str


class ProblemBody(BaseModel):
    """The body of every error (RFC 9457)."""

    type: str = Field(description="A stable name for the kind of problem.", examples=["/problems/name-taken"])
    title: str
    status: int
    detail: str = Field(description="What was asked, what is true, what to do.")
    request_id: str | None = Field(None, description="As in X-Request-ID; the service's log has it too.")
    images: list[ImageProblem] | None = Field(None, description="The images that cannot be used.")
    errors: list[ParameterProblem] | None = Field(None, description="The parameters that cannot be used.")


class Problem(Exception):
    """An error answer; raise it anywhere within a request."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        slug: str | None = None,
        images: Sequence[ImageProblem] = (),
        errors: Sequence[ParameterProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.slug = slug
        self.images = list(images)
        self.errors = list(errors)
        self.headers = dict(headers or {})

    def body(self, request_id: str | None = None) -> ProblemBody:
        return ProblemBody(
            type=f"/problems/{self.slug}" if self.slug else "about:blank",
            title=self.title,
            status=self.status,
            detail=self.detail,
            request_id=request_id,
            images=self.images or None,
            errors=self.errors or None,
        )

    def response(self, request_id: str | None = None) -> Response:
        content = json.dumps(self.body(request_id).model_dump(exclude_none=True), ensure_ascii=False)
        # A caller's text may contain half a surrogate pair, which UTF-8 cannot encode.
        return Response(content.encode("utf-8", "replace"), self.status, self.headers, MEDIA_TYPE)


def shortened(text: str) -> str:
    """As much of a caller's own text as an answer repeats."""
    return text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…"


# OpenAPI

_DESCRIPTIONS = {
    400: "The body or a header cannot be read.",
    401: "A valid API key is missing.",
    403: "The key lacks the scope; or no key exists and the request does not come from this machine.",
    404: "It does not exist.",
    408: "The body did not arrive in time.",
    409: "The request does not fit the current state: a name is taken, or a limit is reached.",
    413: "The body is too large.",
    415: "The type of the body is not accepted.",
    422: "The request was read but cannot be used.",
    500: "An internal error of the service.",
    503: "The service cannot do this now; Retry-After says when to try again.",
    507: "The database's disk is full; nothing was changed.",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
    }
    for status, description in _DESCRIPTIONS.items()
}
_BEFORE_ANY_ROUTE = (400, 413)  # an unreadable or too large Content-Length, also on a route that takes no body


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem answers for a route's `responses`."""
    return {status: _RESPONSES[status] for status in statuses}


def document_problems(app: FastAPI) -> None:
    """Put the problem's schema into the OpenAPI document, in place of the framework's own error schema."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _describe_problems(plain())
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]  # the way that FastAPI documents


def _describe_problems(document: dict[str, Any]) -> None:
    schema = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(schema.pop("$defs", {}), ProblemBody=schema)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path in document.get("paths", {}).values():
        for operation in path.values():
            answers = operation.get("responses", {}) if isinstance(operation, dict) else {}
            if "HTTPValidationError" in str(answers.get("422")):
                answers["422"] = _RESPONSES[422]
            for status in _BEFORE_ANY_ROUTE:
                answers.setdefault(str(status), _RESPONSES[status])
