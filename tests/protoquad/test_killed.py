"""Nothing is lost: the service or its worker killed at any moment, and everything that was acknowledged is there."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import psutil
import pytest
from sqlalchemy import select

from store.database import Database
from store.models import ClassRow, Model, Shot, Version
from tests.processes import Service, eventually

Start = Callable[..., Service]
COLOURS = ("red", "green", "blue", "orange", "purple", "black", "cyan", "yellow")


@dataclass
class Teaching:
    """Teaches class after class until it is stopped, and keeps account of what was acknowledged."""

    service: Service
    names: Iterator[str]
    acknowledged: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    begun: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        for name in self.names:
            if self.stopped.is_set():
                return
            self.tried.add(name)
            self.begun.set()
            try:
                if self.service.teach(name, COLOURS[hash(name) % len(COLOURS)]).status_code == 202:
                    self.acknowledged.add(name)
            except httpx.HTTPError:
                return


@pytest.mark.parametrize("backend", ["sqlite"])  # tests/faults does it on PostgreSQL
def test_whoever_is_killed_while_classes_are_taught_nothing_is_lost(start: Start, database_url: str) -> None:
    """First the worker, then the API. Each class is there whole or not at all, every session ends with one version,
    and the chain has no gap.
    """
    names = (f"class {number}" for number in range(10_000))
    settings = {
        "PROTOQUAD_DATABASE_URL": database_url,
        "PROTOQUAD_WORKER": "true",
        "PROTOQUAD_LEASE_SECONDS": "3",
        "PROTOQUAD_ATTEMPTS": "9",
    }
    service = start(**settings)
    service.wait_for("worker ready")

    first = Teaching(service, names)
    _kill_worker_while(first)
    _sessions_are_over(service)
    _check(service, database_url, first.acknowledged, first.tried)

    second = Teaching(service, names)
    _kill_api_while(second)
    again = start(**settings)
    _sessions_are_over(again)
    _check(again, database_url, first.acknowledged | second.acknowledged, first.tried | second.tried)
    again.teach("afterwards", "black").raise_for_status()


def _kill_worker_while(teaching: Teaching) -> None:
    """Teaching goes on for a while."""
    with _running(teaching) as worker:
        worker.kill()
        eventually(lambda: len(teaching.acknowledged) > 3)
        teaching.stopped.set()


def _kill_api_while(teaching: Teaching) -> None:
    """Nobody is left to stop the worker, so it looks for itself."""
    with _running(teaching) as worker:
        teaching.service.kill()
        eventually(lambda: not _runs(worker))


@contextmanager
def _running(teaching: Teaching) -> Iterator[psutil.Process]:
    """The worker of the service, some time into teaching: the moment is what is tested, and any will do."""
    thread = threading.Thread(target=teaching.run)
    thread.start()
    teaching.begun.wait(60)
    threading.Event().wait(random.uniform(0, 1))
    (worker,) = eventually(lambda: _workers(teaching.service))
    yield worker
    thread.join(60)


def _workers(service: Service) -> list[psutil.Process]:
    return [child for child in psutil.Process(service.process.pid).children() if "worker" in child.cmdline()]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _sessions_are_over(service: Service) -> None:
    over = {"succeeded", "failed", "cancelled"}
    eventually(lambda: all(session["status"] in over for session in service.everything("/sessions")))


def _check(service: Service, database_url: str, acknowledged: set[str], tried: set[str]) -> None:
    listed = {item["name"]: item for item in service.everything("/classes")}
    versions = service.everything("/versions")
    numbers = sorted(version["number"] for version in versions)
    refined = [version["session"] for version in versions if version["kind"] == "incremental"]
    sessions = service.everything("/sessions")
    rows, shots = _stored(database_url)

    assert acknowledged <= set(listed) <= tried
    assert all(item["served"] and item["shots"] == 3 for item in listed.values())
    assert numbers == list(range(len(numbers)))
    assert all(version["parent"] in numbers for version in versions if version["number"])
    assert len(refined) == len(set(refined))
    assert {session["status"] for session in sessions} <= {"succeeded"}
    assert all(session["version"] in numbers for session in sessions if session["verdict"])
    assert dict.fromkeys(listed, 3) == {rows[class_id]: count for class_id, count in shots.items()}


def _stored(database_url: str) -> tuple[dict[int, str], dict[int, int]]:
    """Classes by id and how many shots each has, read from the database itself."""
    database = Database(database_url)
    with database.read() as db:
        model = db.scalars(select(Model)).one()
        rows = {row.id: row.name for row in db.scalars(select(ClassRow))}
        shots: dict[int, int] = {}
        for shot in db.scalars(select(Shot)):
            shots[shot.class_id] = shots.get(shot.class_id, 0) + 1
        known = db.get_one(Version, (model.id, model.head)).classes
    database.close()
    assert known == len(rows)
    return rows, shots
