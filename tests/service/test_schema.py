"""The service keeps to its own OpenAPI document, whatever is sent to it."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.app import create_app
from store.database import Database
from store.settings import Settings

schemathesis.serializer.alias("application/zip", "application/octet-stream")
DOCUMENT = create_app(Settings(), Database("sqlite://")).openapi()
KEPT = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# What is under a model's name is answered by the same functions as what is at the root.
# The first key would end open access to the service that all tests share.
schema = (
    schemathesis.openapi.from_dict(DOCUMENT)
    .exclude(path_regex=r"^/models/\{model\}/.+")
    .exclude(path="/keys", method="POST")
    .exclude(path="/events")  # without end
    .exclude(path="/webhooks", method="POST")  # it would send to addresses that chance makes up
)


@pytest.fixture
def address(service: Any) -> str:
    """Where the service listens. Nothing is queued there: a stream of events ends only with its session."""
    for model in service.http.get("/models").json()["items"]:
        learner = service.learner(model["name"])
        for session in learner.get("/sessions")["items"]:
            if session["status"] == "queued":
                learner.post(f"/sessions/{session['id']}/cancel")
    url: str = service.url
    return url


@schema.parametrize()
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_every_answer_is_one_that_is_documented(case: Case, address: str) -> None:
    """No fault of the service's, and no status, content type or body that the document does not know."""
    case.headers.pop("Prefer", None)  # its example waits half a minute for a worker that is not there

    answer = case.call(base_url=address, timeout=60)

    case.validate_response(answer, checks=KEPT)


def test_every_operation_has_a_name_of_its_own() -> None:
    """Generated clients call methods by it."""
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]

    assert len(names) == len(set(names))
    assert {"teach", "teach_of_model", "predict", "predict_of_model", "create_model"} <= set(names)


@pytest.mark.parametrize(
    ("method", "path"), [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods]
)
def test_what_stands_before_and_around_a_route_is_documented_with_it(method: str, path: str) -> None:
    """Whatever refuses a request before its route sees it: a body of any size, keys, names, a database that is away."""
    operation = DOCUMENT["paths"][path][method]
    expected = {"400", "413"}
    if "security" in operation:
        expected |= {"401", "403", "503"}
    if "parameters" in operation:
        expected |= {"422"}
    if "{" in path:
        expected |= {"404"}
    if "requestBody" in operation:
        expected |= {"408", "415", "422"}
    if method != "get" and not path.endswith(("/predict", "/infer")):
        expected |= {"507"}

    assert expected <= operation["responses"].keys()
