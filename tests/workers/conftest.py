"""Workers, in this process and in others, and sessions that need no learning."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from store import catalogue, sessions
from store.database import Database
from store.models import SessionId, SessionRow
from tests.processes import Running
from tests.waiting import until


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
            until(lambda session_id=session_id: self.status(session_id) == "succeeded", f"session {session_id} ran")


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
