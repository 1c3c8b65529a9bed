"""`/docs`: the page that a newcomer opens first, on a machine that may have no internet."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
from fastapi import FastAPI

from service.app import create_app
from store.database import Database
from store.settings import Settings

Ask = Callable[..., httpx.Response]


def test_the_page_loads_nothing_from_elsewhere(ask: Ask, tmp_path: Path) -> None:
    """Scripts and styles come with the service."""
    app = _app(tmp_path)
    page = ask(app, "GET", "/docs")

    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(sources) >= 2
    assert all(source.startswith("/") for source in sources)
    assert {ask(app, "GET", source).status_code for source in sources} == {200}


def test_every_route_says_what_it_does(ask: Ask, tmp_path: Path) -> None:
    """A summary for each, and an answer that is described."""
    document = ask(_app(tmp_path), "GET", "/openapi.json").json()

    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len(operations) > 30
    assert all(operation["summary"] and operation["responses"] for operation in operations)


def _app(folder: Path) -> FastAPI:
    return create_app(Settings(home=folder), Database(f"sqlite:///{folder}/unused.db"))
