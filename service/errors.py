"""What went wrong, told as RFC 9457 problems: one table gives each domain error its status.

Tells a caller what to do next and nothing about our insides: what is not in the table is a 500 with a request id.
"""

import http
import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import ImageError, UnknownBackbone
from engine.errors import Overloaded, UnusableImages
from engine.single_flight import Busy
from store.errors import Conflict, LimitReached, NameTaken, NotThere
from store.idempotency import KeyReused
from store.outages import frames, is_full, is_outage, summary

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
CLIENT_GONE = 499  # as nginx logs it: nobody is left to read the answer
LONGEST_ECHO = 200  # characters of a caller's own text that an answer repeats

_log = structlog.get_logger("protoquad.errors")


class ImageProblem(BaseModel):
    """One picture that cannot be used."""

    index: int = Field(description="Which picture of the request, counted from 0.")
    filename: str | None = Field(None, description="Its file name, where the request gave one.")
    reason: str


class ParameterProblem(BaseModel):
    """One parameter or field that cannot be used."""

    where: str = Field(description="Which one, such as `query top_k` or `body name`.")
    reason: str


class ProblemBody(BaseModel):
    """What every error answers (RFC 9457)."""

    type: str = Field(description="A stable name of the kind of problem.", examples=["/problems/name-taken"])
    title: str
    status: int
    detail: str = Field(description="What was asked, what is true, what to do.")
    request_id: str | None = Field(None, description="As in X-Request-ID: the service's log knows it.")
    images: list[ImageProblem] | None = Field(None, description="The pictures at fault.")
    errors: list[ParameterProblem] | None = Field(None, description="The parameters at fault.")


class Problem(Exception):
    """An answer other than the one that was hoped for; raise it anywhere within a request."""

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
        # A caller's text may hold half a surrogate pair, which has no UTF-8.
        return Response(content.encode("utf-8", "replace"), self.status, self.headers, MEDIA_TYPE)


# A limit is a 409 and not a 403: no other key would help, deleting something does.
_TABLE: dict[type[Exception], tuple[int, str, str]] = {
    ImageError: (422, "invalid-image", "A picture cannot be used"),
    UnknownBackbone: (422, "unknown-backbone", "There is no such backbone"),
    NotThere: (404, "not-found", "It does not exist"),
    NameTaken: (409, "name-taken", "The name is taken"),
    Conflict: (409, "conflict", "The request does not fit the present state"),
    LimitReached: (409, "limit-reached", "A limit is reached"),
    KeyReused: (422, "idempotency-key-reused", "The idempotency key belongs to another request"),
}

_DESCRIPTIONS = {
    400: "The body or a header cannot be read.",
    401: "A valid API key is missing.",
    403: "The key's scope is too small; or, with no key made, the request does not come from this machine.",
    404: "It does not exist.",
    408: "The body did not arrive in time.",
    409: "The request does not fit the present state: a name is taken, a limit is reached.",
    413: "The body is too large.",
    415: "The body is of a type that is not accepted.",
    422: "The request was read and cannot be used.",
    500: "A fault of the service.",
    503: "The service cannot do this now; Retry-After says when to try again.",
    507: "The database's disk is full; nothing was changed.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
    }
    for status, description in _DESCRIPTIONS.items()
}

_BEFORE_ANY_ROUTE = (400, 413)  # a Content-Length that cannot be read, or is too large, also where no body is wanted


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem answers for a route's `responses`."""
    return {status: RESPONSES[status] for status in statuses}


def unusable_images(problems: Sequence[ImageProblem], total: int) -> Problem:
    """Some pictures of a request cannot be used; `problems` says which and why."""
    first = problems[0]
    detail = (
        f"{len(problems)} of {total} pictures cannot be used, and nothing was done with the others; "
        f"picture {first.index}: {first.reason}"
    )
    return Problem(422, "A picture cannot be used", detail, slug="invalid-image", images=problems)


def unreachable_database() -> Problem:
    return Problem(
        503,
        "The database cannot be reached",
        f"the database cannot be reached; predictions go on, try this again in {RETRY_SECONDS} seconds",
        slug="database-unavailable",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


def insufficient_storage() -> Problem:
    return Problem(
        507,
        "The disk is full",
        "the database has no room left, so nothing was changed; predictions go on, make room and try again",
        slug="insufficient-storage",
    )


def internal_error() -> Problem:
    detail = "the service failed to answer; try again, and quote the request id to whoever runs it if it happens again"
    return Problem(500, "A fault of the service", detail, slug="internal-error")


def request_id(request: Request) -> str | None:
    found = getattr(request.state, "request_id", None)
    return found if isinstance(found, str) else None


def shortened(text: str) -> str:
    """A caller's own text, as much of it as an answer repeats."""
    return text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…"


def install(app: FastAPI) -> None:
    """Answer every error as a problem; call it before adding other middleware, so that those see the answer."""
    app.add_exception_handler(Problem, _on_problem)
    for kind in _TABLE:
        app.add_exception_handler(kind, _on_domain_error)
    app.add_exception_handler(SQLAlchemyError, _on_database_error)
    app.add_exception_handler(UnusableImages, _on_unusable_images)
    app.add_exception_handler(Overloaded, _on_overloaded)
    app.add_exception_handler(Busy, _on_busy)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_client_gone)
    app.add_exception_handler(Exception, _on_unexpected)  # from middleware
    app.add_middleware(_Unexpected)
    _document(app)


async def _on_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response(request_id(request))


async def _on_domain_error(request: Request, error: Exception) -> Response:
    status, slug, title = next(_TABLE[kind] for kind in type(error).__mro__ if kind in _TABLE)
    return Problem(status, title, str(error), slug=slug).response(request_id(request))


async def _on_database_error(request: Request, error: Exception) -> Response:
    """Never with the error itself: its text repeats the statement, and may repeat its parameters, images and all."""
    own_id = request_id(request)
    if is_full(error):
        _log.warning("database_full", error=summary(error))
        return insufficient_storage().response(own_id)
    if is_outage(error):
        _log.warning("database_unreachable", error=summary(error))
        return unreachable_database().response(own_id)
    where = {"method": request.method, "path": request.scope["path"], "request_id": own_id}
    _log.error("database_fault", **where, error=summary(error), stack=frames(error))
    return internal_error().response(own_id)


async def _on_unusable_images(request: Request, error: Exception) -> Response:
    assert isinstance(error, UnusableImages)
    images = [ImageProblem(index=bad.index, filename=bad.filename, reason=bad.reason) for bad in error.images]
    return unusable_images(images, error.total).response(request_id(request))


async def _on_overloaded(request: Request, error: Exception) -> Response:
    detail, headers = f"{error}; try again in a second", {"Retry-After": "1"}
    problem = Problem(503, "Too many pictures wait", detail, slug="overloaded", headers=headers)
    return problem.response(request_id(request))


async def _on_busy(request: Request, error: Exception) -> Response:
    assert isinstance(error, Busy)
    detail, headers = f"{error}; try again in {error.retry_seconds} s", {"Retry-After": str(error.retry_seconds)}
    return Problem(503, "It is being loaded", detail, slug="busy", headers=headers).response(request_id(request))


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    reasons = [ParameterProblem(where=_where(one["loc"]), reason=shortened(_reason(one))) for one in found]
    detail = "; ".join(f"{one.where}: {one.reason}" for one in reasons[:5])
    if any(one["type"] == "json_invalid" for one in found):
        problem = Problem(400, "The body is not JSON", detail, slug="malformed-body", errors=reasons)
    else:
        problem = Problem(422, "The request cannot be used", detail, slug="invalid-request", errors=reasons)
    return problem.response(request_id(request))


def _where(location: Sequence[int | str]) -> str:
    return shortened(" ".join(str(step) for step in location))


def _reason(error: Mapping[str, Any]) -> str:
    """Pydantic's message, without the input it is about."""
    if error["type"] == "json_invalid":
        return f"this is not JSON ({error['ctx']['error']})"
    message = str(error["msg"])
    return message[:1].lower() + message[1:]


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """The framework's own refusals: a route or a method that does not exist, a body that cannot be parsed."""
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    detail, headers = str(error.detail), error.headers
    if error.status_code == http.HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": ", ".join(_allowed_methods(request))}
    if detail == phrase:
        detail = _routing_detail(request, error.status_code, headers)
    slug = phrase.lower().replace(" ", "-")
    problem = Problem(error.status_code, phrase, detail, slug=slug, headers=headers)
    return problem.response(request_id(request))


def _allowed_methods(request: Request) -> list[str]:
    """Every method that some route takes at this path; the framework names those of one route alone."""
    scope = request.scope
    asked = {name: scope[name] for name in ("type", "path", "query_string", "headers")}
    asked["root_path"] = scope.get("app_root_path", scope["root_path"])  # a mount has put its own there
    allowed: set[str] = set()
    for route in request.app.routes:
        if route.matches({**asked, "method": "none"})[0] is Match.NONE:  # another path
            continue
        if isinstance(route, Mount):  # files, which take any method to refuse it later
            allowed |= {"GET", "HEAD"}
        else:
            allowed |= {str(one) for one in http.HTTPMethod if route.matches({**asked, "method": one})[0] is Match.FULL}
    return sorted(allowed)


def _routing_detail(request: Request, status: int, headers: Mapping[str, str] | None) -> str:
    path = shortened(request.scope["path"])
    method = shortened(request.method)
    if status == http.HTTPStatus.NOT_FOUND:
        return f"there is no {path}; /docs lists what there is"
    if status == http.HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{path} does not take {method}, it takes {(headers or {}).get('Allow') or 'another method'}"
    return f"{method} {path} is refused"


async def _on_client_gone(request: Request, _: Exception) -> Response:
    gone = Problem(CLIENT_GONE, "The client went away", "the connection was closed before the body was whole")
    return gone.response(request_id(request))


async def _on_unexpected(request: Request, error: Exception) -> Response:
    own_id = request_id(request)
    _log.error("unexpected_error", method=request.method, path=request.scope["path"], request_id=own_id, exc_info=error)
    return internal_error().response(own_id)


class _Unexpected:
    """Answers what no handler knows, within the other middleware: it is logged once, measured and carries its id."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = scope["type"] != "http"

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            if started:  # half an answer cannot be taken back: let the server break the connection
                raise
            response = await _on_unexpected(Request(scope), error)
            await response(scope, receive, send)


def _document(app: FastAPI) -> None:
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
                answers["422"] = RESPONSES[422]
            for status in _BEFORE_ANY_ROUTE:
                answers.setdefault(str(status), RESPONSES[status])
