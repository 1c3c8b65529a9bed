"""The page and its files over HTTP: found, compressed, cached, and under a strict content policy."""

import asyncio
import gzip
import re
from collections.abc import Callable

import httpx
import pytest
from fastapi import FastAPI

from console.routes import files, router
from console.static_files import FOLDER

Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask() -> Ask:
    """One request to the routes of the console alone."""
    app = FastAPI()
    app.include_router(router)

    def send(path: str, method: str = "GET", **headers: str) -> httpx.Response:
        async def request() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                return await client.request(method, path, headers=named)

        return asyncio.run(request())

    return send


def test_the_page_is_at_the_root(ask: Ask) -> None:
    """It is asked for again every time: it names the release whose files it needs."""
    answer = ask("/")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert f"/console/{files().release}/app.js" in answer.text


def test_every_file_that_the_page_names_exists(ask: Ask) -> None:
    """And may be kept for ever, because its address names the release."""
    named = re.findall(r'(?:src|href)="(/console/[^"]+)"', ask("/").text)

    answers = [ask(address) for address in named]

    assert len(named) > 10
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.headers["cache-control"] for answer in answers} == {"public, max-age=31536000, immutable"}


def test_every_module_that_a_module_imports_exists() -> None:
    """There is no build that would notice."""
    imports = re.compile(r"""(?:from|import\()\s*["'](\.[^"']+)["']""")
    named = [(file, name) for file in FOLDER.rglob("*.js") for name in imports.findall(file.read_text())]

    missing = [f"{file.name} imports {name}" for file, name in named if not (file.parent / name).resolve().is_file()]

    assert len(named) > 50
    assert missing == []


def test_scripts_come_from_here_only(ask: Ask) -> None:
    """And no text becomes markup: trusted types are required, and no policy may make any."""
    policy = ask("/").headers["content-security-policy"]

    assert policy.startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'"
    )
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy


def test_text_is_compressed_for_who_accepts_it(ask: Ask) -> None:
    """The same content either way."""
    plain, compressed = (
        ask("/console/app.js", accept_encoding="identity"),
        ask("/console/app.js", accept_encoding="gzip"),
    )

    assert "content-encoding" not in plain.headers
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.content == plain.content  # httpx has decompressed it
    assert int(compressed.headers["content-length"]) < int(plain.headers["content-length"])
    assert len(gzip.compress(plain.content)) == pytest.approx(int(compressed.headers["content-length"]), abs=20)


def test_what_has_not_changed_is_not_sent_again(ask: Ask) -> None:
    """By its ETag."""
    etag = ask("/").headers["etag"]

    again = ask("/", if_none_match=etag)

    assert again.status_code == 304
    assert again.content == b""


def test_a_page_of_an_older_release_gets_the_files_of_this_one(ask: Ask) -> None:
    """While replicas are exchanged; browsers must not keep them."""
    answer = ask("/console/0123456789ab/app.js")

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["nope.js", "../routes.py", "%2e%2e/routes.py", "vendor/VENDOR.md", "", "samples"])
def test_nothing_else_is_served(ask: Ask, path: str) -> None:
    """No source, no folder, no note."""
    assert ask(f"/console/{path}").status_code == 404


def test_a_head_request_has_the_same_headers(ask: Ask) -> None:
    """As HTTP wants it."""
    assert ask("/", "HEAD").headers["etag"] == ask("/").headers["etag"]


def test_the_samples_are_listed_by_class(ask: Ask) -> None:
    """Shots to teach, images to try, and one class that nobody teaches."""
    listed = {one["name"]: one for one in ask("/samples").json()}

    assert {name: len(one["shots"]) for name, one in listed.items()} == {"fish": 5, "house": 5, "mug": 5, "umbrella": 0}
    assert all(len(one["tests"]) == 1 for one in listed.values())
    assert ask(listed["mug"]["shots"][0]).headers["content-type"] == "image/jpeg"
