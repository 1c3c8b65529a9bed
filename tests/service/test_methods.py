"""A method that a path does not take is answered with those that it does take, all of them."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from service.app import create_app
from store.database import Database
from store.settings import Settings

Ask = Callable[..., Any]
APP = create_app(Settings(), Database("sqlite://"))
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}
DOCUMENTED = {path: {method.upper() for method in operations} for path, operations in APP.openapi()["paths"].items()}
DOCUMENTED["/models/import"] |= DOCUMENTED["/models/{model}"]  # a model may have that name
FILES = {"/openapi.json": {"GET", "HEAD"}, "/docs-assets/swagger-ui.css": {"GET", "HEAD"}}


@pytest.mark.parametrize(("path", "methods"), [*DOCUMENTED.items(), *FILES.items()])
def test_every_method_of_the_path_is_in_the_allow_header(ask: Ask, path: str, methods: set[str]) -> None:
    """Though each is a route of its own; a query changes nothing."""
    asked = re.sub(r"\{\w+\}", "1", path)
    refused = sorted(METHODS - methods)

    answers = {
        (method, query): ask(APP, method, asked + query) for method in refused for query in ("", "?top_k=1&method=GET")
    }

    assert {answer.status_code for answer in answers.values()} == {405}
    assert {answer.headers["allow"] for answer in answers.values()} == {", ".join(sorted(methods))}
    form = "application/json" if path.startswith("/v2") else "application/problem+json"
    assert {answer.headers["content-type"] for answer in answers.values()} == {form}


def test_the_document_has_paths_with_several_methods() -> None:
    """Without which the table above would prove little."""
    assert len(DOCUMENTED) > 24
    assert sum(len(methods) > 1 for methods in DOCUMENTED.values()) >= 6
