"""Sends hints from a thread of its own, each at its time: whoever gives one goes on at once.

With Redis away hints are dropped. So are hints for a queue that nobody reads: they would only fill the memory.
"""

import heapq
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

import structlog

from hints.broker import CHANNEL, TASK, celery_app, connected

log = structlog.get_logger()

MOST_WAITING = 10_000  # hints, in this process
MOST_UNREAD = 1_000  # messages, in one queue
SECONDS_OF_SILENCE = 5.0  # after Redis did not answer: it is not asked for every hint


class Hints(Protocol):
    """What others are told; `seconds` from now."""

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None: ...

    def model_changed(self, model: str) -> None: ...

    def close(self) -> None: ...


class NoHints:
    """Without a broker everybody looks at the table."""

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None:
        pass

    def model_changed(self, model: str) -> None:
        pass

    def close(self) -> None:
        pass


class RedisHints:
    """One thread that sends what is due; the other methods return at once."""

    def __init__(self, url: str) -> None:
        self._redis = connected(url)
        self._celery = celery_app(url)
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._news = threading.Condition()
        self._closing = False
        self._silent_until = 0.0
        self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
        self._thread.start()

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None:
        """A worker that hears of the session before it is ready could do nothing, so it is told when it is."""
        self._give(seconds, partial(self._announce, session_id, queue))

    def model_changed(self, model: str) -> None:
        self._give(0.0, partial(self._redis.publish, CHANNEL, model))

    def close(self) -> None:
        """What is not sent by now is found in the table."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join(timeout=2.0)
        self._redis.close()
        self._celery.close()

    def _give(self, seconds: float, send: Callable[[], object]) -> None:
        with self._news:
            if len(self._due) < MOST_WAITING:
                heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), send))
                self._news.notify()

    def _run(self) -> None:
        while (send := self._next()) is not None:
            if time.monotonic() < self._silent_until:
                continue
            try:
                send()
            except Exception as error:  # whatever a driver raises: a hint is worth nobody's trouble
                log.warning("redis does not answer; the table is polled instead", error=_first_line(error))
                self._silent_until = time.monotonic() + SECONDS_OF_SILENCE

    def _next(self) -> Callable[[], object] | None:
        with self._news:
            while not self._closing:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._news.wait(wait)
            return None

    def _announce(self, session_id: int, queue: str) -> None:
        if self._redis.llen(queue) < MOST_UNREAD:
            self._celery.send_task(TASK, args=[session_id], queue=queue)


def hints(url: str) -> Hints:
    return RedisHints(url) if url else NoHints()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
