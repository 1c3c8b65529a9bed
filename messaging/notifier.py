"""Sends hints from a thread of its own, each at its time: whoever gives one goes on at once.

While Redis is away hints wait, and beyond a bound new ones are dropped. So are announcements to a queue that nobody
reads: they would only fill the memory of Redis.
"""

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Protocol

import structlog

from messaging.broker import CHANNEL, PREFIX, TASK, celery_app, connected, first_line

log = structlog.get_logger()

MOST_WAITING = 10_000  # hints, in this process
MOST_UNREAD = 1_000  # messages, in one queue
SECONDS_OF_SILENCE = 2.0  # after Redis did not answer: it is not asked for every hint
SECONDS_TO_CLOSE = 2.0


class Notifier(Protocol):
    """What others are told; `seconds` from now."""

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None: ...

    def model_changed(self, model: str) -> None: ...

    def close(self) -> None: ...


class NullNotifier:
    """Without a broker everybody looks at the table."""

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None:
        pass

    def model_changed(self, model: str) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True, order=True)
class _Hint:
    due: float
    number: int  # of two that are due together the older goes first
    send: Callable[[], object] = field(compare=False)


class RedisNotifier:
    """One thread that sends what is due; the other methods return at once."""

    def __init__(self, url: str) -> None:
        self._redis = connected(url)
        self._celery = celery_app(url)
        self._waiting: list[_Hint] = []
        self._changed: set[str] = set()  # models whose change is still to be told: once is enough
        self._numbers = count()
        self._news = threading.Condition()
        self._closing = False
        self._silent_until = float("-inf")
        self._told = False
        self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
        self._thread.start()

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None:
        """A worker that hears of the session before it is ready could do nothing, so it is told when it is."""
        with self._news:
            self._give(time.monotonic() + seconds, partial(self._announce, session_id, queue))

    def model_changed(self, model: str) -> None:
        with self._news:
            if model not in self._changed and self._give(time.monotonic(), partial(self._publish, model)):
                self._changed.add(model)

    def close(self) -> None:
        """Sends what is due, if Redis is there; the rest is found in the table."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join(SECONDS_TO_CLOSE)

    def _give(self, due: float, send: Callable[[], object]) -> bool:
        if len(self._waiting) >= MOST_WAITING or self._closing:
            return False
        heapq.heappush(self._waiting, _Hint(due, next(self._numbers), send))
        self._news.notify()
        return True

    def _run(self) -> None:
        while (hint := self._next()) is not None:
            try:
                hint.send()
                self._told = False
            except Exception as error:  # whatever a driver raises: a hint is worth nobody's trouble
                self._later(hint, error)
        self._redis.close()
        self._celery.close()

    def _next(self) -> _Hint | None:
        with self._news:
            while True:
                silent = self._silent_until - time.monotonic()
                wait = max(silent, self._waiting[0].due - time.monotonic()) if self._waiting else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._waiting)
                if self._closing:
                    return None
                self._news.wait(wait)

    def _later(self, hint: _Hint, error: Exception) -> None:
        if not self._told:
            log.warning("no hint can be sent; the table is polled instead", error=first_line(error))
        self._told = True
        with self._news:
            self._silent_until = time.monotonic() + SECONDS_OF_SILENCE
            heapq.heappush(self._waiting, replace(hint, due=self._silent_until))  # behind those that were not tried

    def _publish(self, model: str) -> None:
        with self._news:
            self._changed.discard(model)  # before it is told: who changes it from now on has news of his own
        try:
            self._redis.publish(CHANNEL, model)
        except Exception:
            with self._news:
                self._changed.add(model)
            raise

    def _announce(self, session_id: int, queue: str) -> None:
        if self._redis.llen(f"{PREFIX}{queue}") < MOST_UNREAD:
            self._celery.send_task(TASK, args=[session_id], queue=queue)


def make_notifier(url: str) -> Notifier:
    return RedisNotifier(url) if url else NullNotifier()
