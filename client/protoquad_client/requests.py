"""Requests and answers as values: what to send, whether it may be sent twice, and how to read the answer."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

from protoquad_client.answers import Item, Page
from protoquad_client.parsing import Value, loads, page_of, value_of

Parsed = TypeVar("Parsed")
DEFAULT_MODEL = "default"
PAGE = 500  # items, the most that the service gives
Param = str | int | bool | None


class Repeat(Enum):
    """What a request does when it is sent twice."""

    SAFE = "the same as once"
    KEYED = "the same as once, because of its idempotency key"
    UNSAFE = "something else: it is sent again only if nothing of it was sent"
    NEVER = "of no use"


@dataclass(frozen=True)
class Answer:
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes


@dataclass(frozen=True)
class Request(Generic[Parsed]):
    method: str
    path: str  # below the model, if `of_model`
    parse: Callable[[Answer], Parsed]
    of_model: bool = True
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = field(default=None, repr=False)
    repeat: Repeat = Repeat.SAFE
    least_seconds: float = 0.0  # that the service may take, whatever the client's timeout is
    most_seconds: float = float("inf")  # that the caller has

    def path_of(self, model: str) -> str:
        prefix = "" if not self.of_model or model == DEFAULT_MODEL else f"/models/{quoted(model)}"
        return prefix + self.path


def quoted(part: object) -> str:
    """As a part of a path. Dots alone would lead to another path: that of another model, or of none."""
    text = quote(str(part), safe="")
    return text.replace(".", "%2E") if text in (".", "..") else text


def given(**params: Param) -> dict[str, str]:
    """Parameters of a query, without those that are None. `from_` is called `from`."""
    return {
        name.rstrip("_"): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in params.items()
        if value is not None
    }


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return uuid4().hex


def as_json(body: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a request with a JSON body; fields that are None are left out."""
    content = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
    return {"content": content, "headers": {"Content-Type": "application/json"}}


# How answers are read


def parsed_as(kind: type[Value]) -> Callable[[Answer], Value]:
    return partial(_value, kind)


def parsed_as_page(kind: type[Item]) -> Callable[[Answer], Page[Item]]:
    return partial(_page, kind)


def as_bytes(answer: Answer) -> bytes:
    return answer.content


def as_text(answer: Answer) -> str:
    return answer.content.decode("utf-8", "replace")


def nothing(_: Answer) -> None:
    return None


def _value(kind: type[Value], answer: Answer) -> Value:
    return value_of(kind, loads(answer.content))


def _page(kind: type[Item], answer: Answer) -> Page[Item]:
    return page_of(kind, loads(answer.content))
