"""A worker's pulse beats when work goes forward, and a worker whose pulse has stopped ends itself."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store.database import Database
from store.heartbeats import heartbeats
from store.settings import Settings
from workers import heartbeat as pulse_module
from workers.heartbeat import STALLED, Heartbeat, Watchdog
from workers.loop import _Loop
from workers.session_worker import SessionWorker
from workers.wakeups import Wakeups

Until = Callable[[Callable[[], Any], str], None]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """With what code this process would have ended."""
    codes: list[int] = []
    monkeypatch.setattr(pulse_module.os, "_exit", codes.append)
    return codes


def test_a_pulse_is_seen_by_others_ages_and_goes_with_its_worker(tmp_path: Path, until: Until) -> None:
    """A file under the home folder, by the name of host and process."""
    pulse = Heartbeat(tmp_path)
    with Watchdog(pulse, 60.0):
        ((name, age),) = heartbeats(tmp_path).items()
        assert name.endswith(f"-{os.getpid()}")
        until(lambda: heartbeats(tmp_path)[name] > age, "it ages")
        os.utime(pulse.file, (0, 0))
        assert heartbeats(tmp_path)[name] > 1e9

    assert heartbeats(tmp_path) == {}


def test_a_worker_without_a_step_ends_itself(tmp_path: Path, ended: list[int], until: Until) -> None:
    """With a code that says: try again."""
    with Watchdog(Heartbeat(tmp_path), 0.2):
        until(lambda: ended, "it ended")

    assert set(ended) == {STALLED} == {75}


def test_a_worker_that_goes_forward_does_not(tmp_path: Path, ended: list[int]) -> None:
    """However long it takes in all."""
    pulse = Heartbeat(tmp_path)
    with Watchdog(pulse, 1.0):
        for _ in range(30):
            threading.Event().wait(0.05)
            pulse.beat()

    assert ended == []


def test_a_worker_that_was_paused_has_not_hung(tmp_path: Path, ended: list[int]) -> None:
    """Stopped with its machine and gone on with it: its last step is long ago by the clock alone."""
    pulse = Heartbeat(tmp_path)
    with Watchdog(pulse, 1.0):
        pulse.last -= 3600
        threading.Event().wait(0.5)
        pulse.beat()

    assert ended == []


@pytest.mark.parametrize("backend", ["sqlite"])
def test_an_idle_worker_that_seldom_looks_is_not_taken_for_a_stalled_one(
    database: Database, tmp_path: Path, ended: list[int]
) -> None:
    """It has nothing to do, and knows."""
    settings = Settings(home=tmp_path, poll_seconds=3600, stall_seconds=1.0, engine="torch")
    worker, wakeups = SessionWorker(database, settings, "test"), Wakeups()
    loop = threading.Thread(target=_Loop(worker, wakeups, None).run)
    with Watchdog(worker.heartbeat, settings.stall_seconds):
        loop.start()
        threading.Event().wait(2.5)
        worker.stop.set()
        wakeups.wake()
        loop.join(10)

    assert ended == []
    assert not loop.is_alive()


def test_a_home_that_cannot_be_written_stops_no_work(tmp_path: Path, lines: list[Any]) -> None:
    """It is said, and that is all."""
    (tmp_path / "workers").write_text("in the way")
    Heartbeat(tmp_path).beat()

    assert [line["event"] for line in lines] == ["the heartbeat cannot be written"]
