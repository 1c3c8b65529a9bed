"""Celery's end of the queue, in this process: what it puts into the wakeups, and how little anybody waits for it."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from messaging import broker
from messaging.broker import PREFIX
from messaging.notifier import RedisNotifier
from tests.redis_server import RedisServer
from tests.unanswering import PASSWORD, WAYS, unanswering
from workers import celery_consumer as consuming
from workers.celery_consumer import CeleryConsumer
from workers.wakeups import Wakeups

Until = Callable[[Callable[[], Any], str], None]
SECONDS = 15.0  # bound of every wait, on a busy machine
LISTENING, BACK = "listening on redis", "redis is back"
AWAY = "redis does not answer; the table is polled instead"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "SECONDS_BETWEEN_TRIES", 0.1)
    monkeypatch.setattr(consuming, "SECONDS_PER_WAIT", 0.1)


@contextmanager
def listening(url: str, *queues: str) -> Iterator[Wakeups]:
    wakeups = Wakeups()
    with CeleryConsumer(url, queues or ("cpu",), wakeups, threading.Event()):
        yield wakeups


def told(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines]


def test_a_message_waits_for_the_worker_and_the_next_stays_for_others(redis: RedisServer, until: Until) -> None:
    """One at a time: a worker that is busy keeps no session from one that is free."""
    with closing(RedisNotifier(redis.url)) as giving, listening(redis.url) as wakeups, redis.client() as client:
        for session_id in (1, 2):
            giving.session_queued(session_id, "cpu", 0.0)
        first = wakeups.next(SECONDS)
        until(lambda: client.llen(f"{PREFIX}cpu") == 1, "the second is in the queue")
        assert wakeups.next(0.3) is None
        assert first is not None
        first.handled.set()
        second = wakeups.next(SECONDS)
        assert second is not None
        second.handled.set()

    assert (first.session_id, second.session_id) == (1, 2)


def test_messages_of_another_queue_are_left_there(redis: RedisServer, lines: list[Any]) -> None:
    """For workers that can do what they ask for."""
    with closing(RedisNotifier(redis.url)) as giving, listening(redis.url, "gpu") as wakeups, redis.client() as client:
        giving.session_queued(1, "cpu", 0.0)
        giving.session_queued(2, "gpu", 0.0)
        announced = wakeups.next(SECONDS)
        assert announced is not None
        announced.handled.set()

        assert announced.session_id == 2
        assert client.llen(f"{PREFIX}cpu") == 1
    assert lines[0] == {"event": LISTENING, "queues": ["gpu"], "log_level": "info"}


def test_it_is_heard_again_after_a_restart_that_lost_everything(
    redis: RedisServer, lines: list[Any], until: Until
) -> None:
    """One line when Redis goes, one when it is back, none of Celery's."""
    with closing(RedisNotifier(redis.url)) as giving, listening(redis.url) as wakeups:
        until(lambda: LISTENING in told(lines), "it listens")
        for _ in range(2):
            redis.kill()
            until(lambda: told(lines)[-1] == AWAY, "it noticed")
            redis.start()
            until(lambda: told(lines)[-1] == BACK, "it listens again")
        redis.flush()
        giving.session_queued(7, "cpu", 0.0)
        announced = wakeups.next(SECONDS)
        assert announced is not None
        announced.handled.set()

    assert announced.session_id == 7
    assert told(lines) == [LISTENING, AWAY, BACK, AWAY, BACK]


def test_it_is_heard_again_after_a_restart_in_the_middle_of_a_session(
    redis: RedisServer, lines: list[Any], until: Until
) -> None:
    """Nothing that Redis forgot about the message at hand keeps the next one away."""
    with closing(RedisNotifier(redis.url)) as giving, listening(redis.url) as wakeups:
        for session_id in (1, 2, 3):
            giving.session_queued(session_id, "cpu", 0.0)
            announced = wakeups.next(SECONDS)
            assert announced is not None
            assert announced.session_id == session_id
            redis.kill()
            announced.handled.set()
            until(lambda session_id=session_id: told(lines).count(AWAY) >= session_id, "it noticed")
            redis.start()


def test_a_connection_that_is_open_and_dead_is_noticed(
    redis: RedisServer, lines: list[Any], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropped packets close no connection."""
    monkeypatch.setattr(broker, "SECONDS_WITHOUT_NEWS", 0.5)
    monkeypatch.setattr(consuming, "SECONDS_TO_CONSUME", 1.5)
    with listening(redis.url):
        until(lambda: LISTENING in told(lines), "it listens")
        redis.send(signal.SIGSTOP)
        until(lambda: AWAY in told(lines), "it noticed")
        redis.send(signal.SIGCONT)
        until(lambda: BACK in told(lines), "it listens again")


@pytest.mark.parametrize("way", WAYS)
def test_a_redis_that_is_of_no_use_is_told_of_once_and_never_waited_for(
    way: str, tmp_path: Path, lines: list[Any], until: Until
) -> None:
    """It goes on trying; when the worker stops it is left where it is; its password is not told."""
    with unanswering(way, tmp_path) as url:
        with listening(url):
            until(lambda: lines, "it noticed")
            threading.Event().wait(0.3)  # in the middle of whatever it does
            started = time.monotonic()
        took = time.monotonic() - started

    assert took < consuming.SECONDS_TO_STOP + 3
    assert told(lines) == [AWAY]
    assert PASSWORD not in str(lines)


def test_it_ends_at_once_while_it_listens_and_while_a_message_waits(
    redis: RedisServer, lines: list[Any], until: Until
) -> None:
    """Whoever stops a worker need not know which."""
    for messages in (0, 1):
        with closing(RedisNotifier(redis.url)) as giving, listening(redis.url) as wakeups:
            until(lambda messages=messages: told(lines).count(LISTENING) == messages + 1, "it listens")
            if messages:
                giving.session_queued(1, "cpu", 0.0)
                assert wakeups.next(SECONDS) is not None
            started = time.monotonic()
        assert time.monotonic() - started < consuming.SECONDS_TO_STOP + 3
    assert not [thread for thread in threading.enumerate() if thread.name == "announcements"]


def test_a_message_that_means_nothing_is_dropped(redis: RedisServer) -> None:
    """Whoever can write to Redis can stop nobody from hearing the next one."""
    with closing(RedisNotifier(redis.url)) as giving, listening(redis.url) as wakeups, redis.client() as client:
        client.rpush(f"{PREFIX}cpu", b"not even json")
        giving._celery.send_task("something.else", args=[], queue="cpu")
        giving._celery.send_task(broker.TASK, args=["seven", "and more"], queue="cpu")
        giving.session_queued(7, "cpu", 0.0)
        announced = wakeups.next(SECONDS)
        assert announced is not None
        announced.handled.set()

    assert announced.session_id == 7
