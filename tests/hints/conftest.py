"""A Redis that a test may stop, and what is logged meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.redis_server import RedisServer

SECONDS = 30.0  # bound of every wait, on a busy machine


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of this test's own; it runs."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    if server.runs:
        server.kill()


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """What is logged."""
    with structlog.testing.capture_logs() as captured:
        yield captured


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], Any], str], None]:
    """Waits until something is true, with a bound."""

    def wait(true: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not true():
            assert time.monotonic() < deadline, f"it did not come to pass that {what}"
            threading.Event().wait(0.01)

    return wait
