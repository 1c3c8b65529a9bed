"""A listener hears of every change, finds Redis again by itself, and is never waited for."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messaging import listener as listening
from messaging.broker import CHANNEL
from messaging.listener import Listener
from tests.redis_server import RedisServer
from tests.unanswering import PASSWORD, WAYS, unanswering

Until = Callable[[Callable[[], Any], str], None]
AWAY = "redis does not answer; the table is polled instead"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "SECONDS_BETWEEN_TRIES", 0.1)
    monkeypatch.setattr(listening, "SECONDS_PER_WAIT", 0.1)


def told(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines]


def change(redis: RedisServer) -> None:
    with redis.client() as client:
        assert client.publish(CHANNEL, "birds") == 1, "nobody listens"


def test_each_change_is_reported_and_first_what_came_before(redis: RedisServer, until: Until, lines: list[Any]) -> None:
    """Once it listens it asks for a look: whatever happened earlier nobody told it."""
    news: list[None] = []
    with Listener(redis.url, lambda: news.append(None)):
        until(lambda: len(news) == 1, "it listens")
        for number in (2, 3):
            change(redis)
            until(lambda number=number: len(news) == number, "the change is heard")

    assert told(lines) == ["listening on redis"]


def test_after_a_restart_it_listens_again_and_reports_once(redis: RedisServer, until: Until, lines: list[Any]) -> None:
    """What changed in between is found by one look."""
    news: list[None] = []
    with Listener(redis.url, lambda: news.append(None)):
        until(lambda: len(news) == 1, "it listens")
        redis.kill()
        until(lambda: AWAY in told(lines), "it noticed")
        redis.start()
        until(lambda: len(news) == 2, "it listens again")
        change(redis)
        until(lambda: len(news) == 3, "the change is heard")

    assert told(lines) == ["listening on redis", AWAY, "redis is back"]


def test_a_connection_that_is_open_and_dead_is_noticed(
    redis: RedisServer, until: Until, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropped packets close no connection: silence is asked whether it is alive."""
    monkeypatch.setattr(listening, "SECONDS_WITHOUT_NEWS", 0.2)
    news: list[None] = []
    with Listener(redis.url, lambda: news.append(None)):
        until(lambda: len(news) == 1, "it listens")
        redis.send(signal.SIGSTOP)
        until(lambda: AWAY in told(lines), "it noticed")
        redis.send(signal.SIGCONT)
        until(lambda: len(news) == 2, "it listens again")

    assert told(lines) == ["listening on redis", AWAY, "redis is back"]


def test_a_quiet_connection_that_answers_is_kept(
    redis: RedisServer, until: Until, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Being asked whether it is alive is no news."""
    monkeypatch.setattr(listening, "SECONDS_WITHOUT_NEWS", 0.1)
    asked = lambda client: client.info("commandstats").get("cmdstat_ping", {}).get("calls", 0)  # noqa: E731
    news: list[None] = []
    with Listener(redis.url, lambda: news.append(None)), redis.client() as client:
        until(lambda: len(news) == 1, "it listens")
        before = asked(client)
        until(lambda: asked(client) >= before + 3, "it was asked three times")
        change(redis)
        until(lambda: len(news) == 2, "the change is heard")

    assert told(lines) == ["listening on redis"]


def test_a_redis_that_comes_later_is_found(tmp_path: Path, until: Until, lines: list[Any]) -> None:
    """Down from the start: said once, and once that it is there."""
    redis = RedisServer(tmp_path)
    news: list[None] = []
    with Listener(redis.url, lambda: news.append(None)):
        until(lambda: lines, "it noticed")
        assert not news
        redis.start()
        until(lambda: news, "it listens")
    redis.kill()

    assert told(lines) == [AWAY, "redis is back"]


@pytest.mark.parametrize("way", [*WAYS, "up"])
def test_closing_is_quick_whatever_redis_does(way: str, redis: RedisServer, tmp_path: Path, lines: list[Any]) -> None:
    """A service that stops does not wait for it; nor is its password told."""
    (tmp_path / "other").mkdir()
    with unanswering("down" if way == "up" else way, tmp_path / "other") as url:
        listener = Listener(redis.url if way == "up" else url, lambda: None)
        listener.__enter__()
        listener._stopped.wait(0.3)  # in the middle of whatever it does
        started = time.monotonic()
        listener.__exit__(None, None, None)
        took = time.monotonic() - started
        listener._thread.join(10)

    assert took < 2.0
    assert not listener._thread.is_alive()
    assert PASSWORD not in str(lines)
