"""Notifier are sent at their time, and whoever gives one never waits for Redis."""

import json
import signal
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.client import PubSub

from messaging import notifier as sending
from messaging.broker import CHANNEL, PREFIX
from messaging.notifier import NullNotifier, RedisNotifier, make_notifier
from tests.redis_server import RedisServer
from tests.unanswering import PASSWORD, WAYS, unanswering

Until = Callable[[Callable[[], Any], str], None]
SECONDS = 30  # bound of every wait, on a busy machine
AT_ONCE = 2.0  # much more than it takes, much less than a connection that is waited for
AWAY = "redis does not answer; other processes find changes by polling"


@pytest.fixture(autouse=True)
def _short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SECONDS_BETWEEN_RETRIES", 0.2)


@pytest.fixture
def giving(redis: RedisServer) -> Iterator[RedisNotifier]:
    with closing(RedisNotifier(redis.url)) as giving:
        yield giving


def announced(client: Redis, queue: str = "cpu") -> int:
    """The next session that is announced on the queue."""
    found = client.blpop([f"{PREFIX}{queue}"], timeout=SECONDS)
    assert found is not None, "nothing was announced"
    message = json.loads(found[1])
    assert message["headers"]["task"] == "protoquad.session"
    (session_id,) = json.loads(b64decode(message["body"]))[0]
    assert isinstance(session_id, int)
    return session_id


@contextmanager
def hearing(redis: RedisServer) -> Iterator[PubSub]:
    with redis.client() as client, client.pubsub() as channel:
        channel.subscribe(CHANNEL)
        assert channel.get_message(timeout=SECONDS)
        yield channel


def heard(channel: PubSub) -> str:
    message = channel.get_message(ignore_subscribe_messages=True, timeout=SECONDS)
    assert message is not None, "nothing was heard"
    return str(message["data"].decode())


# At their time


def test_a_session_is_announced_when_it_is_ready_and_not_before(redis: RedisServer, giving: RedisNotifier) -> None:
    """A worker that hears of it too early could do nothing with it."""
    given = time.monotonic()
    giving.session_queued(7, "cpu", 0.5)

    with redis.client() as client:
        assert announced(client) == 7
    assert time.monotonic() - given >= 0.5


def test_what_is_due_first_goes_first(redis: RedisServer, giving: RedisNotifier) -> None:
    """Whichever was given first."""
    giving.session_queued(1, "cpu", 0.6)
    giving.session_queued(2, "cpu", 0.3)
    giving.session_queued(3, "cpu", 0.0)

    with redis.client() as client:
        assert [announced(client) for _ in range(3)] == [3, 2, 1]


def test_each_queue_has_its_own_messages(redis: RedisServer, giving: RedisNotifier) -> None:
    """What waits for a GPU is not announced to workers without one."""
    giving.session_queued(1, "gpu", 0.0)
    giving.session_queued(2, "cpu", 0.0)

    with redis.client() as client:
        assert announced(client, "cpu") == 2
        assert announced(client, "gpu") == 1


def test_everybody_who_listens_hears_of_a_changed_model(redis: RedisServer, giving: RedisNotifier) -> None:
    """By its name, at once."""
    with hearing(redis) as one, hearing(redis) as another:
        giving.model_changed("birds")

        assert (heard(one), heard(another)) == ("birds", "birds")


def test_all_keys_are_under_one_name(redis: RedisServer, giving: RedisNotifier, until: Until) -> None:
    """Others may use the same Redis, for a queue that is called cpu too."""
    giving.session_queued(1, "cpu", 0.0)

    with redis.client() as client:
        until(lambda: client.exists(f"{PREFIX}cpu"), "the message was sent")
        found = list(client.scan_iter())
    assert all(key.startswith(PREFIX.encode()) for key in found)


def test_a_variable_that_is_meant_for_another_program_changes_nothing(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery reads it by itself."""
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://127.0.0.1:1/0")
    with closing(RedisNotifier(redis.url)) as giving, redis.client() as client:
        giving.session_queued(7, "cpu", 0.0)

        assert announced(client) == 7


# Never in anybody's way


@pytest.mark.parametrize("way", WAYS)
def test_a_caller_never_waits_whatever_redis_does(way: str, tmp_path: Path, lines: list[Any]) -> None:
    """Nothing raises, one line tells, no password is in it, and closing waits for nobody."""
    with unanswering(way, tmp_path) as url:
        giving = RedisNotifier(url)
        took = []
        for number in range(200):
            started = time.perf_counter()
            giving.session_queued(number, "cpu", 0.0)
            giving.model_changed(f"model {number}")
            took.append(time.perf_counter() - started)
            time.sleep(0.001)  # so that some are given while one is being sent
        started = time.monotonic()
        giving.close()
        closed = time.monotonic() - started

    assert max(took) < 0.9, "a pause of the machine; a connection gives up after a second"
    assert closed < sending.SECONDS_TO_CLOSE + 3
    assert [line["event"] for line in lines] in ([AWAY], [])  # none: it was closed while it waited for the first answer
    assert PASSWORD not in str(lines)


@pytest.mark.parametrize("way", WAYS)
def test_the_thread_outlives_every_failure_and_tells_of_it_once(
    way: str, tmp_path: Path, lines: list[Any], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on asking, not for every hint and not in the log."""
    asked = []
    plain = RedisNotifier._retry_later

    def counted(self: RedisNotifier, *arguments: Any) -> None:
        asked.append(None)
        plain(self, *arguments)

    monkeypatch.setattr(RedisNotifier, "_retry_later", counted)
    with unanswering(way, tmp_path) as url, closing(RedisNotifier(url)) as giving:
        giving.session_queued(1, "cpu", 0.0)
        giving.model_changed("birds")
        until(lambda: len(asked) >= 2, "it was asked twice")

        assert giving._thread.is_alive()
    assert [line["event"] for line in lines] == [AWAY]
    assert PASSWORD not in str(lines)


def test_hints_that_were_given_while_redis_was_down_are_sent_when_it_is_back(
    redis: RedisServer, giving: RedisNotifier, lines: list[Any], until: Until
) -> None:
    """Late, but sent: nobody need wait for the next look at the table."""
    redis.kill()
    giving.session_queued(7, "cpu", 0.0)
    until(lambda: lines, "it was noticed")
    giving.model_changed("birds")

    redis.start()

    with redis.client() as client:
        assert announced(client) == 7
    with hearing(redis) as channel:
        giving.model_changed("cars")
        assert heard(channel) in {"birds", "cars"}


@pytest.mark.parametrize("loss", ["restart", "flush"])
def test_what_redis_loses_between_two_hints_does_not_matter(
    redis: RedisServer, giving: RedisNotifier, loss: str
) -> None:
    """The second one goes out at once: neither a dead connection nor a forgotten queue costs it."""
    with redis.client() as client:
        giving.session_queued(1, "cpu", 0.0)
        assert announced(client) == 1
    if loss == "restart":
        redis.kill()
        redis.start()
    else:
        redis.flush()

    with hearing(redis) as channel, redis.client() as client:
        started = time.monotonic()
        giving.session_queued(2, "cpu", 0.0)
        giving.model_changed("birds")
        assert announced(client) == 2
        assert heard(channel) == "birds"
    assert time.monotonic() - started < AT_ONCE


# Bounds


def test_a_queue_that_nobody_reads_does_not_grow_for_ever(
    redis: RedisServer, giving: RedisNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are there all the same."""
    monkeypatch.setattr(sending, "MAX_UNREAD", 5)
    with hearing(redis) as channel, redis.client() as client:
        for number in range(20):
            giving.session_queued(number, "cpu", 0.0)
        giving.model_changed("birds")
        heard(channel)

        assert client.llen(f"{PREFIX}cpu") == 5


def test_only_so_many_hints_wait_for_a_redis_that_is_away(
    redis: RedisServer, giving: RedisNotifier, lines: list[Any], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest are dropped; what comes later, when there is room again, is sent."""
    monkeypatch.setattr(sending, "MAX_WAITING", 5)
    redis.kill()
    giving.session_queued(0, "cpu", 0.0)
    until(lambda: lines, "it was noticed")
    for number in range(1, 20):
        giving.session_queued(number, "cpu", 0.0)
    redis.start()

    with redis.client() as client:
        sent = {announced(client) for _ in range(5)}
        giving.session_queued(99, "cpu", 0.0)
        assert announced(client) == 99
    assert sent == {0, 1, 2, 3, 4}


def test_a_model_that_changes_again_and_again_is_told_once(
    redis: RedisServer, giving: RedisNotifier, lines: list[Any], until: Until
) -> None:
    """While Redis is away; afterwards each change counts again."""
    redis.send(signal.SIGSTOP)  # it hears everything, later
    giving.model_changed("birds")
    until(lambda: lines, "it was noticed")
    for _ in range(50):
        giving.model_changed("birds")
    with giving._wakeup:
        waiting = len(giving._waiting)
    redis.send(signal.SIGCONT)

    assert waiting <= 2
    with hearing(redis) as channel:
        until(lambda: not giving._waiting, "all is told")
        while channel.get_message(timeout=0.1):
            pass
        for _ in range(2):
            giving.model_changed("birds")
            assert heard(channel) == "birds"


def test_closing_sends_what_is_due(redis: RedisServer) -> None:
    """A worker that stops right after it has published is heard; what is due later is not sent early."""
    with hearing(redis) as channel, redis.client() as client:
        giving = RedisNotifier(redis.url)
        giving.session_queued(1, "cpu", 60.0)
        giving.model_changed("birds")
        giving.close()

        assert heard(channel) == "birds"
        assert client.llen(f"{PREFIX}cpu") == 0
    assert not giving._thread.is_alive()


def test_a_hint_that_comes_after_the_end_is_dropped(redis: RedisServer) -> None:
    """Without a word: a request may still be on its way."""
    giving = RedisNotifier(redis.url)
    giving.close()
    giving.session_queued(1, "cpu", 0.0)
    giving.model_changed("birds")

    with redis.client() as client:
        assert client.llen(f"{PREFIX}cpu") == 0


def test_without_a_broker_there_is_nobody_to_tell() -> None:
    """And nothing to connect to."""
    giving = make_notifier("")
    giving.session_queued(1, "cpu", 0.0)
    giving.model_changed("birds")
    giving.close()

    assert isinstance(giving, NullNotifier)
