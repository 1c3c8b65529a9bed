"""Workers, in this process and in others, and sessions that need no learning."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from store import catalogue, sessions
from store.database import Database
from store.models import SessionId, SessionRow
from tests.processes import Running
from tests.redis_server import RedisServer

SECONDS = 60.0  # bound of every wait, on a busy machine


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
    """What is logged in this process."""
    with structlog.testing.capture_logs() as captured:
        yield captured


def _until(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"it did not come to pass that {what}"
        threading.Event().wait(0.01)


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], Any], str], None]:
    """Waits until something is true, with a bound."""
    return _until


class Jobs:
    """Sessions with nothing to learn: whoever claims one ends it at once, which is all that is asked here."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._made = 0

    def queued(self, queue: str = "cpu") -> SessionId:
        """Ready at once, each of a model of its own."""
        self._made += 1
        with self.database.write() as db:
            model = catalogue.create(db, f"model-{self._made}", "resnet32", 1.0)
            return sessions.enqueue(db, model, delay=0, patience=0, queue=queue).id

    def status(self, session_id: SessionId) -> str:
        with self.database.read() as db:
            return db.get_one(SessionRow, session_id).status

    def are_over(self, *session_ids: SessionId) -> None:
        for session_id in session_ids:
            _until(lambda session_id=session_id: self.status(session_id) == "succeeded", f"session {session_id} ran")


@pytest.fixture
def jobs(database: Database) -> Jobs:
    return Jobs(database)


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Callable[..., Running]]:
    """Starts `protoquad worker` on this test's database; the names of settings are given without their prefix."""
    with ExitStack() as stack:

        def started(**settings: str) -> Running:
            given = {"HOME": str(tmp_path / "home"), "DATABASE_URL": database_url, **settings}
            worker = Running(["worker"], {f"PROTOQUAD_{name}": value for name, value in given.items()})
            stack.callback(worker.close)
            return worker

        yield started
