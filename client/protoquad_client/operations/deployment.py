"""Operations that are about no model: who calls, keys, health, and what the deployment is."""

from collections.abc import Sequence

from protoquad_client.answers import About, Key, NewKey, Page, SampleClass, Scope, WhoAmI
from protoquad_client.errors import UnexpectedAnswer
from protoquad_client.parsing import loads, value_of
from protoquad_client.requests import (
    Answer,
    Repeat,
    Request,
    as_bytes,
    as_json,
    as_text,
    nothing,
    parsed_as,
    parsed_as_page,
    quoted,
)


def about() -> Request[About]:
    return Request("GET", "/about", parsed_as(About), of_model=False)


def whoami() -> Request[WhoAmI]:
    return Request("GET", "/whoami", parsed_as(WhoAmI), of_model=False)


def samples() -> Request[tuple[SampleClass, ...]]:
    return Request("GET", "/samples", _samples, of_model=False)


def sample_image(path: str) -> Request[bytes]:
    if not path.startswith("/"):
        raise ValueError(f"'{path}' is no path of a sample; take one of `samples()`")
    return Request("GET", path, as_bytes, of_model=False)


def metrics() -> Request[str]:
    return Request("GET", "/metrics", as_text, of_model=False)


def alive() -> Request[None]:
    return Request("GET", "/livez", nothing, of_model=False, repeat=Repeat.NEVER)


def ready() -> Request[None]:
    return Request("GET", "/readyz", nothing, of_model=False, repeat=Repeat.NEVER)


def keys(cursor: str | None = None) -> Request[Page[Key]]:  # noqa: ARG001  # the service gives all at once
    return Request("GET", "/keys", parsed_as_page(Key), of_model=False)


def create_key(name: str, scopes: Sequence[Scope]) -> Request[NewKey]:
    body = as_json({"name": name, "scopes": list(scopes)})
    return Request("POST", "/keys", parsed_as(NewKey), of_model=False, repeat=Repeat.UNSAFE, **body)


def revoke_key(key_id: str) -> Request[None]:
    return Request("DELETE", f"/keys/{quoted(key_id)}", nothing, of_model=False, repeat=Repeat.UNSAFE)


def _samples(answer: Answer) -> tuple[SampleClass, ...]:
    content = loads(answer.content)
    if not isinstance(content, list):
        raise UnexpectedAnswer("the answer is no list of samples; is the address that of a protoquad service?")
    return tuple(value_of(SampleClass, one) for one in content)
