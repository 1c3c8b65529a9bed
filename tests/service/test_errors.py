"""Every error is answered as a problem that says what to do, and nothing of what is inside leaks."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import DatabaseError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from core.errors import BrokenImage, UnknownBackbone
from engine.errors import BadImage, Overloaded, UnusableImages
from engine.single_flight import Busy
from service import errors
from service.metrics import Metrics
from service.problems import ImageProblem, Problem, ProblemBody, responses
from service.request_middleware import RequestMiddleware
from store.errors import Conflict, KeyReused, LeaseLost, LimitReached, NameTaken, NotThere, UnusableName

Ask = Callable[..., Any]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    errors.install(app)
    return app


def raising(app: FastAPI, error: Exception) -> FastAPI:
    @app.get("/it")
    async def it() -> None:
        raise error

    return app


def problem(response: Any) -> ProblemBody:
    """What is in every problem: a type, and a body that fits its schema."""
    assert response.headers["content-type"] == "application/problem+json"
    body = ProblemBody.model_validate(response.json())
    assert body.status == response.status_code
    return body


# Domain errors


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (BrokenImage("it is torn"), 422, "invalid-image"),
        (UnknownBackbone("there is no 'x'"), 422, "unknown-backbone"),
        (NotThere("there is no class 9"), 404, "not-found"),
        (NameTaken("'cat' is taken"), 409, "name-taken"),
        (Conflict("it has succeeded already"), 409, "conflict"),
        (LeaseLost("it is another's"), 409, "conflict"),
        (LimitReached("there are 10 classes"), 409, "limit-reached"),
        (KeyReused("take a new key"), 422, "idempotency-key-reused"),
    ],
)
def test_a_domain_error_has_its_status(app: FastAPI, ask: Ask, error: Exception, status: int, slug: str) -> None:
    """The table decides, for an error and for those that derive from it; its own words are the detail."""
    response = ask(raising(app, error), "GET", "/it")

    body = problem(response)
    assert (body.status, body.type, body.detail) == (status, f"/problems/{slug}", str(error))


def test_a_problem_is_answered_as_it_was_raised(app: FastAPI, ask: Ask) -> None:
    """With its headers, and with an entry for every image at fault."""
    torn = [ImageProblem(index=1, filename="a.png", reason="torn"), ImageProblem(index=4, filename=None, reason="no")]
    raised = Problem(418, "Teapot", "no coffee", slug="teapot", images=torn, headers={"Retry-After": "9"})

    response = ask(raising(app, raised), "GET", "/it")

    body = problem(response)
    assert (body.type, body.title, body.detail, body.images) == ("/problems/teapot", "Teapot", "no coffee", torn)
    assert response.headers["retry-after"] == "9"


def test_a_problem_without_a_kind_is_about_blank(app: FastAPI, ask: Ask) -> None:
    """As RFC 9457 names a problem that its status says all about."""
    response = ask(raising(app, Problem(418, "Teapot", "no coffee")), "GET", "/it")

    assert problem(response).type == "about:blank"


def test_text_that_has_no_utf_8_can_be_answered(app: FastAPI, ask: Ask) -> None:
    """A caller's half of a surrogate pair, repeated in a detail, is no fault of ours."""
    response = ask(raising(app, NotThere("there is no '\ud800'")), "GET", "/it")

    assert problem(response).detail == "there is no '?'"


def test_unusable_images_are_listed(app: FastAPI, ask: Ask) -> None:
    """Each with its reason; the detail alone is enough for whoever sees no more than that."""
    error = UnusableImages([BadImage(3, None, "it is torn"), BadImage(4, "a.png", "it is empty")], total=5)

    response = ask(raising(app, error), "GET", "/it")

    body = problem(response)
    assert (body.status, body.type, body.title) == (422, "/problems/invalid-image", "An image cannot be used")
    assert body.detail.startswith("2 of 5 images cannot be used")
    assert "image 3: it is torn" in body.detail
    assert response.json()["images"] == [
        {"index": 3, "reason": "it is torn"},
        {"index": 4, "filename": "a.png", "reason": "it is empty"},
    ]


def test_an_unusable_name_is_listed_as_a_parameter(app: FastAPI, ask: Ask) -> None:
    """For programs that show an error beside its field."""
    response = ask(raising(app, UnusableName("the name is empty")), "GET", "/it")

    body = problem(response)
    assert (body.status, body.type, body.title) == (422, "/problems/invalid-name", "The name cannot be used")
    assert response.json()["errors"] == [{"where": "name", "reason": "the name is empty"}]


@pytest.mark.parametrize(
    ("error", "slug", "seconds", "words"),
    [
        (Overloaded("64 images wait already"), "overloaded", "1", "64 images wait already; try again in a second"),
        (Busy("2 models are being loaded", 7), "busy", "7", "2 models are being loaded; try again in 7 seconds"),
    ],
)
def test_what_cannot_be_done_now_says_when_to_try_again(
    app: FastAPI, ask: Ask, error: Exception, slug: str, seconds: str, words: str
) -> None:
    """In words and in the header; an error may bring its own time."""
    response = ask(raising(app, error), "GET", "/it")

    body = problem(response)
    assert (body.status, body.type, body.detail) == (503, f"/problems/{slug}", words)
    assert response.headers["retry-after"] == seconds


@pytest.mark.parametrize(
    "error",
    [OperationalError("INSERT INTO shots", {"data": b"secret"}, psycopg.OperationalError("down")), PoolTimeout("full")],
)
def test_an_unreachable_database_is_a_503(app: FastAPI, ask: Ask, lines: list[Any], error: Exception) -> None:
    """A caller hears when to come back; the statement and its images reach neither the answer nor the log."""
    response = ask(raising(app, error), "GET", "/it")

    body = problem(response)
    assert (body.status, body.type) == (503, "/problems/database-unavailable")
    assert "predictions go on" in body.detail
    assert int(response.headers["retry-after"]) > 0
    assert [line["event"] for line in lines] == ["database unreachable"]
    assert "shots" not in response.text + str(lines)


def _sqlite(number: int, message: str = "database or disk is full") -> Exception:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = number
    return error


@pytest.mark.parametrize(
    "cause",
    [_sqlite(sqlite3.SQLITE_FULL), _sqlite(sqlite3.SQLITE_IOERR_WRITE), psycopg.errors.DiskFull("no space left")],
)
def test_a_full_disk_is_a_507(app: FastAPI, ask: Ask, lines: list[Any], cause: Exception) -> None:
    """Waiting mends nothing: the caller hears that nothing was changed and that somebody has to make room."""
    response = ask(raising(app, OperationalError("INSERT INTO shots", {"data": b"secret"}, cause)), "GET", "/it")

    body = problem(response)
    assert (body.status, body.type) == (507, "/problems/insufficient-storage")
    assert "make room" in body.detail
    assert "retry-after" not in response.headers
    assert [line["event"] for line in lines] == ["database full"]
    assert "shots" not in response.text + str(lines)


# Faults of ours


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("INSERT", {"data": b"secret"}, _sqlite(sqlite3.SQLITE_ERROR, "no such table: shots")),
        DatabaseError("INSERT", {"data": b"secret"}, _sqlite(sqlite3.SQLITE_CORRUPT, "malformed")),
        ProgrammingError("INSERT", {"data": b"secret"}, psycopg.errors.UndefinedTable("no shots\nDETAIL: secret")),
    ],
)
def test_a_statement_that_can_never_succeed_is_a_500(
    app: FastAPI, ask: Ask, lines: list[Any], error: Exception
) -> None:
    """Nobody is asked to try again for ever; the log says what failed and where, without what was to be written."""
    app.add_middleware(RequestMiddleware, metrics=Metrics())

    response = ask(raising(app, error), "GET", "/it", headers={"X-Request-ID": "abc"})

    body = problem(response)
    assert (body.status, body.type, body.request_id) == (500, "/problems/internal-error", "abc")
    assert "retry-after" not in response.headers
    [fault] = [line for line in lines if line["event"] == "database error"]
    assert (fault["log_level"], fault["request_id"]) == ("error", "abc")
    assert str(error.orig).partition("\n")[0] in fault["error"]  # type: ignore[attr-defined]
    assert "test_errors.py" in fault["stack"]
    assert "secret" not in response.text + str(lines)


def test_an_unexpected_error_tells_nothing_but_its_request_id(app: FastAPI, ask: Ask, lines: list[Any]) -> None:
    """The log has the traceback, once, under the id that the caller was given."""
    app.add_middleware(RequestMiddleware, metrics=Metrics())

    response = ask(raising(app, RuntimeError("the password is 1234")), "GET", "/it", headers={"X-Request-ID": "abc"})

    body = problem(response)
    assert (body.status, body.type, body.request_id) == (500, "/problems/internal-error", "abc")
    assert response.headers["x-request-id"] == "abc"
    assert "1234" not in response.text
    assert "RuntimeError" not in response.text
    [fault] = [line for line in lines if line["event"] == "unexpected error"]
    assert isinstance(fault["exc_info"], RuntimeError)
    assert fault["request_id"] == "abc"


def test_an_error_in_middleware_is_a_problem_too(app: FastAPI, ask: Ask, lines: list[Any]) -> None:
    """Even what lies outside of the handlers answers in the one form."""

    class Broken:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, *_: Any) -> None:
            raise RuntimeError("the password is 1234")

    app.add_middleware(Broken)

    response = ask(app, "GET", "/it", raises=False)

    assert problem(response).type == "/problems/internal-error"
    assert [line["event"] for line in lines] == ["unexpected error"]


def test_an_answer_that_breaks_off_is_not_answered_again(app: FastAPI, ask: Ask, lines: list[Any]) -> None:
    """Half an answer cannot become a problem: the error goes on, and the server closes the connection."""

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"one"
            raise RuntimeError("broken")

        return StreamingResponse(parts())

    with pytest.raises(RuntimeError, match="broken"):
        ask(app, "GET", "/stream")

    assert [line["event"] for line in lines] == ["unexpected error"]


def test_a_client_that_left_is_no_fault_of_ours(app: FastAPI, lines: list[Any]) -> None:
    """Reading the body of somebody who is gone ends the request quietly."""

    @app.post("/it")
    async def it(request: Request) -> None:
        await request.body()

    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/it", "headers": [], "query_string": b""}
    asyncio.run(app(scope, receive, send))

    assert sent[0]["status"] == 499
    assert lines == []


# The framework's own refusals


def test_a_parameter_that_does_not_fit_is_named(app: FastAPI, ask: Ask) -> None:
    """Which one, where it was sent and what is wrong with it, for people and for programs."""

    @app.get("/it")
    async def it(top_k: int) -> None: ...

    response = ask(app, "GET", "/it?top_k=many")

    body = problem(response)
    assert (body.status, body.type) == (422, "/problems/invalid-request")
    assert body.detail.startswith("query top_k: input should be a valid integer")
    assert body.errors is not None
    assert [one.where for one in body.errors] == ["query top_k"]


@pytest.mark.parametrize(
    "content", ['{"name": "a", "\\ud800": 1}', '{"name": ["' + "A" * 10_000 + '"], "' + "B" * 10_000 + '": 1}']
)
def test_what_was_sent_is_not_echoed_at_length(app: FastAPI, ask: Ask, content: str) -> None:
    """Neither an image in the wrong field nor text that has no UTF-8 harms the answer."""

    @app.patch("/it")
    async def it(body: Body) -> None: ...

    response = ask(app, "PATCH", "/it", content=content, headers={"Content-Type": "application/json"})

    assert problem(response).status == 422
    assert len(response.content) < 2000


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe\xfa", b"[" * 100_000])
def test_a_body_that_is_no_json_is_a_400(app: FastAPI, ask: Ask, content: bytes) -> None:
    """It was never read, so there is no field to complain of."""

    @app.patch("/it")
    async def it(body: Body) -> None: ...

    response = ask(app, "PATCH", "/it", content=content, headers={"Content-Type": "application/json"})

    assert problem(response).status == 400


def test_an_unknown_route_says_where_the_routes_are(app: FastAPI, ask: Ask) -> None:
    """The one thing a lost caller needs."""
    response = ask(app, "GET", "/nowhere")

    body = problem(response)
    assert (body.status, body.type) == (404, "/problems/not-found")
    assert "/nowhere" in body.detail
    assert "/docs" in body.detail


def test_a_wrong_method_says_which_are_right(app: FastAPI, ask: Ask) -> None:
    """In words and in the Allow header."""
    response = ask(raising(app, Conflict()), "PUT", "/it")

    body = problem(response)
    assert (body.status, body.type) == (405, "/problems/method-not-allowed")
    assert body.detail == "/it does not take PUT, it takes GET"
    assert response.headers["allow"] == "GET"


def test_an_http_exception_keeps_its_own_words(app: FastAPI, ask: Ask) -> None:
    """Only the framework's stock phrases are replaced."""
    response = ask(raising(app, HTTPException(404, "no tea left")), "GET", "/it")

    assert problem(response).detail == "no tea left"


# OpenAPI


def test_the_document_describes_problems_and_nothing_else(app: FastAPI, ask: Ask) -> None:
    """Every reference resolves, and the framework's own error schema is gone."""

    @app.get("/it", responses=responses(409))
    async def it(top_k: int) -> None: ...

    document = ask(app, "GET", "/openapi.json").json()

    schemas = document["components"]["schemas"]
    answers = document["paths"]["/it"]["get"]["responses"]
    expected = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    assert answers["409"]["content"] == answers["422"]["content"] == expected
    assert set(schemas) == {"ProblemBody", "ImageProblem", "ParameterProblem"}
    assert set(references(document)) == {f"#/components/schemas/{name}" for name in schemas}


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []
