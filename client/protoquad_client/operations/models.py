"""`/models`: several learners on one deployment, and models as files."""

from protoquad_client.answers import Model, Page
from protoquad_client.requests import Repeat, Request, as_json, given, nothing, parsed_as, parsed_as_page, quoted

SECONDS_TO_PREPARE = 1200.0  # a backbone that is new to the service: 600 for another process, 600 for its own


def page(cursor: str | None = None) -> Request[Page[Model]]:  # noqa: ARG001  # the service gives all at once
    return Request("GET", "/models", parsed_as_page(Model), of_model=False)


def get(name: str) -> Request[Model]:
    return Request("GET", f"/models/{quoted(name)}", parsed_as(Model), of_model=False)


def create(name: str, backbone: str | None = None) -> Request[Model]:
    how = as_json({"name": name, "backbone": backbone}) | {"least_seconds": SECONDS_TO_PREPARE}
    return Request("POST", "/models", parsed_as(Model), of_model=False, repeat=Repeat.UNSAFE, **how)


def delete(name: str) -> Request[None]:
    return Request("DELETE", f"/models/{quoted(name)}", nothing, of_model=False, repeat=Repeat.UNSAFE)


def export(name: str) -> Request[None]:
    """The answer is the archive."""
    path, headers = f"/models/{quoted(name)}/export", {"Accept-Encoding": "identity"}
    return Request("GET", path, nothing, of_model=False, headers=headers, least_seconds=SECONDS_TO_PREPARE)


def import_(name: str | None = None) -> Request[Model]:
    """The body is the archive, which the caller sends."""
    return Request(
        "POST",
        "/models/import",
        parsed_as(Model),
        of_model=False,
        params=given(name=name),
        headers={"Content-Type": "application/octet-stream"},
        repeat=Repeat.UNSAFE,
        least_seconds=SECONDS_TO_PREPARE,
    )
