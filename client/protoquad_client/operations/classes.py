"""`/classes`: teach, list, rename, merge, delete."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from protoquad_client.answers import Class, Page, SessionState, Taught
from protoquad_client.forms import EncodedImage, as_form
from protoquad_client.parsing import loads, value_of
from protoquad_client.requests import (
    PAGE,
    Answer,
    Repeat,
    Request,
    as_json,
    given,
    new_key,
    nothing,
    parsed_as,
    parsed_as_page,
    quoted,
)

Sort = Literal["created", "name", "accuracy", "shots"]
Order = Literal["asc", "desc"]
TaughtRequest = Request[Taught[SessionState]]
SECONDS_TO_TEACH = 150.0  # the service takes 120 at most to process images


def teach(name: str, shots: Sequence[EncodedImage], idempotency_key: str | None = None) -> TaughtRequest:
    return _keyed("/classes", as_form("shots", shots, {"name": name}), idempotency_key)


def add_shots(class_id: int, shots: Sequence[EncodedImage], idempotency_key: str | None = None) -> TaughtRequest:
    return _keyed(f"/classes/{quoted(class_id)}/shots", as_form("shots", shots), idempotency_key)


def page(
    cursor: str | None = None, search: str | None = None, sort: Sort | None = None, order: Order | None = None
) -> Request[Page[Class]]:
    params = given(cursor=cursor, limit=PAGE, search=search, sort=sort, order=order)
    return Request("GET", "/classes", parsed_as_page(Class), params=params)


def get(class_id: int) -> Request[Class]:
    return Request("GET", f"/classes/{quoted(class_id)}", parsed_as(Class))


def rename(class_id: int, name: str) -> Request[Class]:
    body = as_json({"name": name})
    return Request("PATCH", f"/classes/{quoted(class_id)}", parsed_as(Class), repeat=Repeat.UNSAFE, **body)


def delete(class_id: int) -> Request[None]:
    return Request("DELETE", f"/classes/{quoted(class_id)}", nothing, repeat=Repeat.UNSAFE)


def merge(class_id: int, into: int) -> TaughtRequest:
    return changing("POST", f"/classes/{quoted(class_id)}/merge", {"into": into})


def changing(method: str, path: str, body: dict[str, Any] | None = None) -> TaughtRequest:
    """A request that changes what a model knows, and that the service takes no idempotency key for."""
    content = {} if body is None else as_json(body)
    return Request(method, path, taught, repeat=Repeat.UNSAFE, least_seconds=SECONDS_TO_TEACH, **content)


def taught(answer: Answer) -> Taught[SessionState]:
    content = loads(answer.content)
    found: Taught[SessionState] = value_of(Taught, {**content, "session": None})
    return replace(found, session=value_of(SessionState, content.get("session")))


def _keyed(path: str, body: dict[str, Any], idempotency_key: str | None) -> TaughtRequest:
    headers = {**body["headers"], "Idempotency-Key": idempotency_key or new_key()}
    how = {"repeat": Repeat.KEYED, "least_seconds": SECONDS_TO_TEACH}
    return Request("POST", path, taught, **{**body, **how, "headers": headers})
