"""The client covers what the service documents, and its two forms are the same."""

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import protoquad_client
import pytest
from protoquad_client import AsyncClient, AsyncSession, Client, NotFound, Session, errors
from protoquad_client.async_resources import AsyncResource
from protoquad_client.errors import PROBLEMS
from protoquad_client.parsing import value_of
from protoquad_client.resources import Resource

from service.app import create_app
from store.database import Database
from store.settings import Settings
from tests.docs.pages import section, text_of

RESOURCES = ("classes", "shots", "versions", "sessions", "inbox", "keys", "models", "webhooks")
# Not for callers of operations: what resources use, and what is about the client itself.
OWN = {"model", "send", "upload", "download", "stream", "follow", "close"}
# Beginnings of paths → why no method of the client sends them.
LEFT_OUT = {"/v2": "the Open Inference Protocol is for clients of its own; each of its routes repeats another"}
PNG = b"\x89PNG"
ARGUMENTS: dict[str, Any] = {
    **{"name": "owl", "images": [PNG], "image": PNG, "class_id": 1, "shot_id": 1, "number": 1, "session_id": 1},
    **{"url": "https://example.org", "webhook_id": "wh_1"},
    **{"sample_id": 1, "samples": [1], "key_id": "k", "scopes": ["admin"], "into": 2, "from_": 1, "to": 2},
}
ONE_OF_TWO = {"move": {"to": 2}, "resolve": {"class_id": 2}, "import_": {}, "start_base": {"folder": "/data"}}


@pytest.fixture(scope="module")
def operations() -> dict[tuple[str, str], Any]:
    """Method and path of each, without those that repeat another for a named model."""
    paths = create_app(Settings(), Database("sqlite://")).openapi()["paths"]
    found = {(method.upper(), path): about for path, methods in paths.items() for method, about in methods.items()}
    repeated = {(method, f"/models/{{model}}{path}") for method, path in found}
    return {key: about for key, about in found.items() if key not in repeated}


def methods_of(client: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """All that a caller can ask of a service."""
    for name, method in inspect.getmembers(client, inspect.ismethod):
        if not name.startswith("_") and name not in OWN:
            yield name, method
    for resource in RESOURCES:
        for name, method in inspect.getmembers(getattr(client, resource), inspect.ismethod):
            if not name.startswith("_") and name != "bound":
                yield f"{resource}.{name}", method


def call(method: Callable[..., Any], folder: Path) -> None:
    """With the fewest arguments; whatever is sent is answered with 404."""
    name = method.__name__
    needed = [one.name for one in inspect.signature(method).parameters.values() if one.default is one.empty]
    archive = folder / "archive"
    archive.write_bytes(b"archive")
    special = {"file": archive, "path": "/samples"}
    try:
        result = method(**{one: {**ARGUMENTS, **special}[one] for one in needed}, **ONE_OF_TWO.get(name, {}))
        if hasattr(result, "__iter__"):
            list(result)
    except NotFound:
        pass


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[httpx2.Request]]:
    """What each method sends."""
    folder, seen, by_method = tmp_path_factory.mktemp("sent"), list[httpx2.Request](), dict[str, list[httpx2.Request]]()
    body = {"type": "/problems/not-found", "title": "It does not exist", "status": 404, "detail": "no"}

    def answer(request: httpx2.Request) -> httpx2.Response:
        request.read()
        seen.append(request)
        return httpx2.Response(404, json=body)

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        for name, method in methods_of(Client("http://service", http_client=http)):
            call(method, folder)
            by_method[name] = list(seen)
            seen.clear()
    return by_method


def operation_of(request: httpx2.Request, operations: dict[tuple[str, str], Any]) -> tuple[str, str] | None:
    fitting = [
        (method, path)
        for method, path in operations
        if method == request.method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.url.path)
    ]
    return min(fitting, key=lambda one: one[1].count("{"), default=None)


def test_every_operation_of_the_service_is_covered(
    operations: dict[tuple[str, str], Any], sent: dict[str, list[httpx2.Request]]
) -> None:
    """By a method of the client, or it is listed as left out."""
    covered = {operation_of(request, operations) for requests in sent.values() for request in requests}

    assert len(operations) > 40
    assert all(sent.values()), {name for name, requests in sent.items() if not requests}
    missing = {path for _, path in set(operations) - covered}
    assert {path for path in missing if not path.startswith(tuple(LEFT_OUT))} == set()
    assert all(any(path.startswith(beginning) for path in missing) for beginning in LEFT_OUT)


def test_the_client_asks_for_nothing_that_is_not_documented(
    operations: dict[tuple[str, str], Any], sent: dict[str, list[httpx2.Request]]
) -> None:
    """Neither routes nor parameters nor fields of a body; `/samples` and its files are of the console."""
    wrong = []
    for name, requests in sent.items():
        for request in requests if name not in ("samples", "sample_image") else []:
            operation = operation_of(request, operations)
            about = operations.get(operation, {}) if operation else {}
            known = {one["name"] for one in about.get("parameters", [])}
            unknown = set(request.url.params) - known
            if not operation or unknown or not fields_of(request) <= documented_fields(about):
                wrong.append((name, request.method, str(request.url), sorted(unknown)))

    assert wrong == []


def fields_of(request: httpx2.Request) -> set[str]:
    kind = request.headers.get("content-type", "")
    if kind == "application/json":
        return set(json.loads(request.content))
    return set(re.findall(r'name="(\w+)"', request.content.decode("latin-1"))) if "form-data" in kind else set()


def documented_fields(operation: Any) -> set[str]:
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    return {name for body in bodies for name in body["schema"].get("properties", {})}


def test_a_key_is_sent_on_the_routes_that_take_one(
    operations: dict[tuple[str, str], Any], sent: dict[str, list[httpx2.Request]]
) -> None:
    """On no others, where it would promise what the service does not keep."""
    takes = {
        one
        for one, about in operations.items()
        if any(parameter["name"] == "Idempotency-Key" for parameter in about.get("parameters", []))
    }
    keyed = {
        operation_of(request, operations)
        for requests in sent.values()
        for request in requests
        if "idempotency-key" in request.headers
    }

    assert takes
    assert keyed == takes


def test_the_two_clients_have_the_same_methods() -> None:
    """With the same parameters; one awaits what the other waits for."""
    one, other = Client("http://service"), AsyncClient("http://service")
    shapes = [
        {name: _parameters(method) for name, method in methods_of(client)} | _plain(client) for client in (one, other)
    ]
    one.close()

    assert shapes[0] == shapes[1]
    assert _parameters(Client.__init__) == _parameters(AsyncClient.__init__)
    assert [_parameters(getattr(Session, name)) for name in ("wait", "events", "cancel")] == [
        _parameters(getattr(AsyncSession, name)) for name in ("wait", "events", "cancel")
    ]


def _plain(client: Any) -> dict[str, Any]:
    return {name: _parameters(getattr(client, name)) for name in ("model", "send", "close")}


def _parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any, str]]:
    """Name, kind, default and type of each; of types, that of the client itself differs."""
    found = inspect.signature(method).parameters.values()
    return [(one.name, one.kind, one.default, str(one.annotation).replace("Async", "")) for one in found]


def test_both_forms_have_a_method_for_each_resource() -> None:
    """No class is left without its twin."""
    plain = {kind.__name__ for kind in Resource.__subclasses__()}

    assert {f"Async{name}" for name in plain} == {kind.__name__ for kind in AsyncResource.__subclasses__()}
    assert plain == {name.capitalize() for name in RESOURCES}


def test_every_type_of_problem_has_its_error() -> None:
    """All that the page lists, and no others."""
    listed = set(re.findall(r"`/problems/([a-z-]+)`", section(text_of("docs/http-api.md"), "Errors")))

    assert set(PROBLEMS) == listed
    assert all(issubclass(kind, errors.Problem) for kind in PROBLEMS.values())
    assert all(getattr(errors, name) for name in errors.__all__)


def test_answers_are_frozen_and_take_fields_that_are_new() -> None:
    """A newer service may say more; a slot for each field, and no others."""
    kinds = [getattr(protoquad_client, name) for name in protoquad_client.__all__]
    answers = [kind for kind in kinds if dataclasses.is_dataclass(kind) and kind.__name__ != "Page"]

    assert len(answers) > 15
    for kind in answers:
        assert kind.__dataclass_params__.frozen
    found = value_of(protoquad_client.ClassName, {"class_id": 1, "label": "owl", "wings": 2})
    assert found == protoquad_client.ClassName(1, "owl")
    assert not hasattr(found, "__dict__")
    with pytest.raises(protoquad_client.UnexpectedAnswer, match="no 'label'"):
        value_of(protoquad_client.ClassName, {"class_id": 1})


def test_an_import_is_light() -> None:
    """Neither torch nor the service, and httpx2 and Pillow only when they are used."""
    code = "import sys, protoquad_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "protoquad_client" in loaded
    assert loaded & {"torch", "numpy", "PIL", "httpx2", "service", "core", "store", "pydantic"} == set()
