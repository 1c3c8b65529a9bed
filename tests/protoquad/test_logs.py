"""What a caller sends can neither steer the terminal that shows the log, nor forge a line of it, nor fill it."""

import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI

from protoquad import logs
from service import errors
from service.metrics import Metrics
from service.request_middleware import RequestMiddleware
from store.settings import Settings

# What a terminal obeys: a colour, a title, a cursor; C1 codes; a change of direction; another line.
HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\b\x9b2J\u202eright\u2028next\n00:00:00 [info     ] forged\x7f"
OWN_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], io.StringIO]]:
    """Sets the logs up in a format and answers where they are written to."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers, root.level

    def set_up(form: str) -> io.StringIO:
        written = io.StringIO()
        monkeypatch.setattr(sys, "stderr", written)
        logs.set_up(Settings(log_format=form))  # type: ignore[arg-type]
        return written

    yield set_up
    structlog.configure(**before)
    root.handlers, root.level = handlers, level


def shown(written: io.StringIO) -> list[str]:
    """The lines, without the colours that the log itself puts there."""
    return OWN_COLOURS.sub("", written.getvalue()).split("\n")[:-1]


def fail_with(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        structlog.get_logger().error("failed", exc_info=True)


SOURCES: dict[str, Callable[[], Any]] = {
    "value": lambda: structlog.get_logger().info("request", path=HOSTILE),
    "event": lambda: structlog.get_logger().info(HOSTILE),
    "list": lambda: structlog.get_logger().info("names", names=[HOSTILE]),
    "object": lambda: structlog.get_logger().info("object", value=type("Odd", (), {"__repr__": lambda _: HOSTILE})()),
    "library": lambda: logging.getLogger("uvicorn.error").warning("Invalid HTTP request received: %s", HOSTILE),
}


@pytest.mark.parametrize("source", SOURCES)
def test_control_characters_are_shown_and_not_obeyed(log: Callable[[str], io.StringIO], source: str) -> None:
    """One printable line, whether the text is ours to log or a library's."""
    written = log("text")

    SOURCES[source]()

    [line] = shown(written)
    assert line.isprintable()
    assert "x1b[31mred" in line
    assert "forged" in line


def test_the_text_of_an_exception_forges_no_line(log: Callable[[str], io.StringIO]) -> None:
    """A traceback keeps its lines, all of which stand off from the margin."""
    written = log("text")

    fail_with(HOSTILE)

    first, *others = shown(written)
    assert "failed" in first
    assert any("forged" in line for line in others)
    assert all(line.isprintable() and line.startswith("    ") for line in others)


def test_a_path_is_escaped_in_the_line_of_its_request(log: Callable[[str], io.StringIO]) -> None:
    """From the URL of a request through to the log."""
    written, app = log("text"), FastAPI()
    errors.install(app)
    app.add_middleware(RequestMiddleware, metrics=Metrics())

    async def ask() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return (await client.get("/%1b%5b31mred%0a00:00:00%20forged")).status_code

    assert asyncio.run(ask()) == 404
    [line] = shown(written)
    assert line.isprintable()
    assert r"x1b[31mred" in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_long_value_is_shortened(log: Callable[[str], io.StringIO], form: str) -> None:
    """Its beginning and its end are kept; so are those of an exception, of which more is worth keeping."""
    written = log(form)

    structlog.get_logger().info("request", path="/first" + "x" * 60_000 + "last")
    length = len(written.getvalue())
    fail_with("cause" + "\n" * 60_000 + "end")

    assert length < 2 * logs.LONGEST_VALUE
    assert "/first" in written.getvalue()
    assert "xlast" in written.getvalue()
    assert "end" in written.getvalue()
    assert len(written.getvalue()) < 8 * logs.LONGEST_TRACEBACK


@pytest.mark.parametrize("source", SOURCES)
def test_a_line_of_json_is_one_line(log: Callable[[str], io.StringIO], source: str) -> None:
    """JSON escapes by itself."""
    written = log("json")

    SOURCES[source]()

    [line] = written.getvalue().split("\n")[:-1]
    assert line.replace("\x7f", "").isprintable()
    assert "forged" in str(json.loads(line))


def test_ordinary_lines_stay_as_they_are(log: Callable[[str], io.StringIO]) -> None:
    """Letters of every language, numbers and lists are not touched."""
    written = log("text")

    structlog.get_logger().info("taught", name="Ζεύς-猫", shots=5, took=0.5, model=None, names=["a", "b"])

    [line] = shown(written)
    assert "model=None name=Ζεύς-猫 names=['a', 'b'] shots=5 took=0.5" in line
