"""A session whose database is away for a moment has not failed; one that the database can never serve has."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from store import sessions
from store.database import Database, now
from store.models import SessionId, SessionRow
from store.settings import Settings
from workers.session_worker import SessionWorker

SECONDS = 20.0


@pytest.fixture
def make(database: Database, tmp_path: Any) -> Callable[..., SessionWorker]:
    def made(kind: type[SessionWorker] = SessionWorker, **more: Any) -> SessionWorker:
        settings = Settings(home=tmp_path, device="cpu", engine="torch", poll_seconds=0.01, **more)
        return kind(database, settings, "worker")

    return made


def row(database: Database, session_id: SessionId) -> SessionRow:
    with database.read() as db:
        return db.get_one(SessionRow, session_id)


def test_a_statement_that_can_never_succeed_counts_as_a_failed_attempt(
    make: Callable[..., SessionWorker], jobs: Any, database: Database, lines: list[Any]
) -> None:
    """After as many as are allowed the session has failed, says why, and runs no more."""
    session_id = jobs.queued()
    with database.write() as db:
        db.execute(text("DROP TABLE prototypes"))
    worker = make(attempts=3)

    ran = [worker.run_next() for _ in range(4)]

    ended = row(database, session_id)
    assert ran == [True, True, True, False]
    assert (ended.status, ended.attempt, ended.failures) == ("failed", 3, 3)
    assert "prototypes" in str(ended.error)
    assert "SELECT" not in str(ended.error)
    failures = [line for line in lines if line["event"] == "session failed"]
    assert [line["error"] for line in failures] == [ended.error] * 3
    assert "read_bank" in failures[0]["stack"]


def outage(database: Database) -> None:
    """A real one: a lock that is held on SQLite, a connection that is lost on PostgreSQL."""
    if not database.is_sqlite:
        with database.read() as db:
            db.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    impatient = create_engine(database.url, connect_args={"timeout": 0})
    with database.write() as db, impatient.connect() as connection:
        db.execute(text("SELECT 1"))
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class Unlucky(SessionWorker):
    """Its database is away whenever it wants to load something."""

    def learn_and_publish(self, *_: Any) -> None:
        outage(self.database)


def test_a_session_that_was_given_back_for_an_outage_starts_again_after_a_pause(
    make: Callable[..., SessionWorker], jobs: Any, database: Database
) -> None:
    """Which grows, for the database answers and the next attempt may fail in the same way; none of them counts."""
    session_id = jobs.queued()
    worker, pauses = make(Unlucky, lease_seconds=SECONDS), []
    for _ in range(6):
        assert worker.run_next()
        given_back = row(database, session_id)
        assert not worker.run_next(), "it must not start again at once"
        with database.write() as db:
            (*_, released) = (told for told in sessions.events(db, session_id) if told.event == "released")
            assert given_back.lease_until is not None
            pauses.append(round((given_back.lease_until - released.at).total_seconds(), 1))
            db.get_one(SessionRow, session_id).lease_until = now(db)  # as if the pause were over

    assert pauses == [2, 4, 8, 16, SECONDS, SECONDS]
    assert (given_back.status, given_back.owner, given_back.failures, given_back.error) == ("running", None, 0, None)
    assert make().run_next()
    assert row(database, session_id).status == "succeeded"
