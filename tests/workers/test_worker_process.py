"""`protoquad worker` as it is run: it hears of sessions, finds those it did not hear of, and stops when told to."""

import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from messaging.notifier import RedisNotifier
from tests.processes import Running
from tests.redis_server import RedisServer
from tests.unanswering import PASSWORD, unanswering

Until = Callable[[Callable[[], Any], str], None]
Start = Callable[..., Running]
SECONDS_TO_STOP = 8.0  # of which a busy machine needs most to end a process that has loaded torch
NEVER = "3600"  # seconds between two looks at the table
AWAY, BACK = "redis does not answer; the table is polled instead", "redis is back"


def stopped(worker: Running, number: int = signal.SIGTERM) -> list[str]:
    """All it has said, once it has ended as it should."""
    started = time.monotonic()
    assert worker.stop(number) == 0
    assert time.monotonic() - started < SECONDS_TO_STOP
    worker.ended()
    return [line["event"] for line in worker.lines]


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_message_alone_starts_a_session(
    start: Start, jobs: Any, redis: RedisServer, tmp_path: Path, until: Until
) -> None:
    """At once, before and after Redis forgets everything; in the one process there is, which tells of its pulse."""
    worker = start(BROKER_URL=redis.url, POLL_SECONDS=NEVER, STALL_SECONDS="2")
    ready = worker.wait_for("worker ready")
    worker.wait_for("listening on redis")
    home = tmp_path / "home" / "workers"
    with closing(RedisNotifier(redis.url)) as giving:
        first, gpu = jobs.queued(), jobs.queued("gpu")
        giving.session_queued(gpu, "cpu", 0.0)  # gone astray
        giving.session_queued(first, "cpu", 0.0)
        jobs.are_over(first)
        assert psutil.Process(worker.process.pid).children(recursive=True) == []
        redis.kill()
        worker.wait_for(AWAY)
        redis.start()
        worker.wait_for(BACK)
        redis.flush()
        second = jobs.queued()
        giving.session_queued(second, "cpu", 0.0)
        jobs.are_over(second)
    (pulse,) = home.glob("*.heartbeat")
    beaten = pulse.stat().st_mtime
    until(lambda: pulse.stat().st_mtime > beaten, "an idle worker's pulse beats")

    events = stopped(worker)
    assert ready["queues"] == ["cpu"]
    assert jobs.status(gpu) == "queued"
    assert set(events) == {
        "worker ready", "listening on redis", AWAY, BACK, "session started", "session over", "stopping"
    }  # fmt: skip
    assert all({"event", "level", "timestamp"} <= set(line) for line in worker.lines)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("backend", ["sqlite"])
def test_without_redis_sessions_are_found_in_the_table(start: Start, jobs: Any, tmp_path: Path) -> None:
    """Down from the start, then there, then gone again: each session runs, and Ctrl-C ends it as quickly as ever."""
    redis = RedisServer(tmp_path)
    worker = start(BROKER_URL=redis.url, POLL_SECONDS="0.2", QUEUES="gpu")
    worker.wait_for(AWAY)
    elsewhere, first = jobs.queued("cpu"), jobs.queued("gpu")
    jobs.are_over(first)
    redis.start()
    worker.wait_for(BACK)
    jobs.are_over(jobs.queued("gpu"))
    redis.kill()
    worker.wait_for(AWAY)
    jobs.are_over(jobs.queued("gpu"))

    events = stopped(worker, signal.SIGINT)
    assert jobs.status(elsewhere) == "queued"
    assert events.count("session over") == 3


@pytest.mark.parametrize("backend", ["sqlite"])
def test_it_stops_at_once_while_it_tries_to_connect(start: Start, jobs: Any, tmp_path: Path) -> None:
    """Having run what it found meanwhile; the password is in no line."""
    with unanswering("packets dropped", tmp_path) as url:
        worker = start(BROKER_URL=url, POLL_SECONDS="0.2", LOG_LEVEL="debug")
        worker.wait_for(AWAY)
        jobs.are_over(jobs.queued())

        events = stopped(worker)
    assert events.count(AWAY) == 1
    assert PASSWORD not in str(worker.lines)
