"""Gives each error its answer: one table gives each domain error its status.

An answer says what to do next and nothing about internals. An error that is not in the table is a 500 with a request
id, and the log has its traceback.
"""

import http
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import ImageError, UnknownBackbone
from engine.errors import Overloaded, UnusableImages
from engine.single_flight import Busy
from learners.base_folder import FolderError
from learners.base_zip import UnusableZip
from service.problems import (
    CLIENT_GONE,
    RETRY_SECONDS,
    ImageProblem,
    ParameterProblem,
    Problem,
    document_problems,
    shortened,
)
from service.request_middleware import request_id
from store.errors import Conflict, KeyReused, LimitReached, NameTaken, NotThere, UnusableName
from store.outages import frames, is_full, is_outage, summary

_log = structlog.get_logger("protoquad.errors")


class _Answer(NamedTuple):
    status: int
    slug: str
    title: str
    retry_seconds: int | None = None  # unless the error has its own


# A limit is a 409 and not a 403: another key would not help, deleting something does.
_ANSWERS: dict[type[Exception], _Answer] = {
    ImageError: _Answer(422, "invalid-image", "An image cannot be used"),
    UnusableImages: _Answer(422, "invalid-image", "An image cannot be used"),
    UnknownBackbone: _Answer(422, "unknown-backbone", "There is no such backbone"),
    FolderError: _Answer(422, "invalid-folder", "The folder cannot be learned from"),
    UnusableZip: _Answer(422, "invalid-zip", "The zip cannot be learned from"),
    UnusableName: _Answer(422, "invalid-name", "The name cannot be used"),
    KeyReused: _Answer(422, "idempotency-key-reused", "The idempotency key belongs to another request"),
    NotThere: _Answer(404, "not-found", "It does not exist"),
    NameTaken: _Answer(409, "name-taken", "The name is taken"),
    Conflict: _Answer(409, "conflict", "The request does not fit the present state"),
    LimitReached: _Answer(409, "limit-reached", "A limit is reached"),
    Overloaded: _Answer(503, "overloaded", "Too many images wait", retry_seconds=1),
    Busy: _Answer(503, "busy", "Busy", retry_seconds=RETRY_SECONDS),
}


def install(app: FastAPI) -> None:
    """Answer every error as a problem; call it before adding other middleware, so that those see the answer."""
    app.add_exception_handler(Problem, _on_problem)
    for kind in _ANSWERS:
        app.add_exception_handler(kind, _on_domain_error)
    app.add_exception_handler(SQLAlchemyError, _on_database_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_client_gone)
    app.add_exception_handler(Exception, _on_unexpected)  # from middleware
    app.add_middleware(_UnexpectedErrors)
    document_problems(app)


async def _on_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response(request_id(request))


async def _on_domain_error(request: Request, error: Exception) -> Response:
    return problem_of(error).response(request_id(request))


def problem_of(error: Exception) -> Problem:
    """The answer to a domain error: that of its own class in the table, or of the nearest base class."""
    answer = next(_ANSWERS[kind] for kind in type(error).__mro__ if kind in _ANSWERS)
    detail, headers = str(error), {}
    images: list[ImageProblem] = []
    parameters: list[ParameterProblem] = []
    retry_seconds = getattr(error, "retry_seconds", answer.retry_seconds)
    if retry_seconds is not None:
        detail += f"; try again in {'a second' if retry_seconds == 1 else f'{retry_seconds} seconds'}"
        headers = {"Retry-After": str(retry_seconds)}
    if isinstance(error, UnusableImages):
        images = [ImageProblem(index=one.index, filename=one.filename, reason=one.reason) for one in error.images]
    elif isinstance(error, UnusableName):
        parameters = [ParameterProblem(where="name", reason=detail)]
    return Problem(
        answer.status, answer.title, detail, slug=answer.slug, images=images, errors=parameters, headers=headers
    )


# Errors of the database


async def _on_database_error(request: Request, error: Exception) -> Response:
    """Never logs the error itself: its text repeats the statement, and may repeat its parameters, including images."""
    own_id = request_id(request)
    if is_full(error):
        _log.warning("database full", error=summary(error))
        return _insufficient_storage().response(own_id)
    if is_outage(error):
        _log.warning("database unreachable", error=summary(error))
        return _unreachable_database().response(own_id)
    where = {"method": request.method, "path": request.scope["path"], "request_id": own_id}
    _log.error("database error", **where, error=summary(error), stack=frames(error))
    return _internal_error().response(own_id)


def _unreachable_database() -> Problem:
    return Problem(
        503,
        "The database cannot be reached",
        f"the database cannot be reached; predictions go on, try this again in {RETRY_SECONDS} seconds",
        slug="database-unavailable",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


def _insufficient_storage() -> Problem:
    return Problem(
        507,
        "The disk is full",
        "the database's disk is full, so nothing was changed; predictions go on, make room and try again",
        slug="insufficient-storage",
    )


# Errors of the framework: parameters, routes, methods, bodies


async def _on_invalid_request(request: Request, error: Exception) -> Response:
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
    """Pydantic's message, without the input that it is about."""
    if error["type"] == "json_invalid":
        return f"this is not JSON ({error['ctx']['error']})"
    message = str(error["msg"])
    return message[:1].lower() + message[1:]


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Errors that the framework raises: unknown routes and methods, bodies that cannot be parsed."""
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
    """Every method that some route takes at this path; the framework lists those of one route only."""
    scope = request.scope
    asked = {name: scope[name] for name in ("type", "path", "query_string", "headers")}
    asked["root_path"] = scope.get("app_root_path", scope["root_path"])  # a mount has replaced it
    allowed: set[str] = set()
    for route in request.app.routes:
        if route.matches({**asked, "method": "none"})[0] is Match.NONE:  # another path
            continue
        if isinstance(route, Mount):  # static files: the mount matches any method
            allowed |= {"GET", "HEAD"}
        else:
            allowed |= {str(one) for one in http.HTTPMethod if route.matches({**asked, "method": one})[0] is Match.FULL}
    return sorted(allowed)


def _routing_detail(request: Request, status: int, headers: Mapping[str, str] | None) -> str:
    path = shortened(request.scope["path"])
    method = shortened(request.method)
    if status == http.HTTPStatus.NOT_FOUND:
        return f"there is no {path}; /docs lists all routes"
    if status == http.HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{path} does not take {method}, it takes {(headers or {}).get('Allow') or 'another method'}"
    return f"{method} {path} is refused"


async def _on_client_gone(request: Request, _: Exception) -> Response:
    gone = Problem(CLIENT_GONE, "The client is gone", "the connection was closed before the whole body arrived")
    return gone.response(request_id(request))


# Everything else


def _internal_error() -> Problem:
    detail = "the service failed to answer; try again, and report the request id to its operator if it happens again"
    return Problem(500, "An internal error", detail, slug="internal-error")


async def _on_unexpected(request: Request, error: Exception) -> Response:
    own_id = request_id(request)
    _log.error("unexpected error", method=request.method, path=request.scope["path"], request_id=own_id, exc_info=error)
    return _internal_error().response(own_id)


class _UnexpectedErrors:
    """Answers errors that have no handler, inside the other middleware: they are logged once and measured."""

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
            if started:  # half an answer was sent: the server must break the connection
                raise
            response = await _on_unexpected(Request(scope), error)
            await response(scope, receive, send)
