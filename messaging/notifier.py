"""Sends messages from a thread of its own, each when it is due: callers return at once.

While Redis is away messages wait, and beyond a bound new ones are dropped. So are announcements to a queue that nobody
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

MAX_WAITING = 10_000  # messages, in this process
MAX_UNREAD = 1_000  # messages, in one queue
SECONDS_BETWEEN_RETRIES = 2.0  # while Redis does not answer
SECONDS_TO_CLOSE = 2.0


class Notifier(Protocol):
    """Announces changes to other processes, some of them `seconds` from now."""

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None: ...

    def model_changed(self, model: str) -> None: ...

    def close(self) -> None: ...


class NullNotifier:
    """Without a broker, everybody polls."""

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None:
        pass

    def model_changed(self, model: str) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True, order=True)
class _Message:
    due: float
    number: int  # of two that are due at the same time, the older goes first
    send: Callable[[], object] = field(compare=False)


class RedisNotifier:
    """One thread sends what is due; the methods return at once."""

    def __init__(self, url: str) -> None:
        self._redis = connected(url)
        self._celery = celery_app(url)
        self._waiting: list[_Message] = []
        self._changed: set[str] = set()  # models whose change waits to be sent: once is enough
        self._numbers = count()
        self._wakeup = threading.Condition()
        self._closing = False
        self._retry_at = float("-inf")
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
        self._thread.start()

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None:
        """Sent when the session is ready: a worker could not start it before."""
        with self._wakeup:
            self._schedule(time.monotonic() + seconds, partial(self._announce, session_id, queue))

    def model_changed(self, model: str) -> None:
        with self._wakeup:
            if model not in self._changed and self._schedule(time.monotonic(), partial(self._publish, model)):
                self._changed.add(model)

    def close(self) -> None:
        """Sends what is due, if Redis answers; polling finds the rest."""
        with self._wakeup:
            self._closing = True
            self._wakeup.notify()
        self._thread.join(SECONDS_TO_CLOSE)

    def _schedule(self, due: float, send: Callable[[], object]) -> bool:
        if len(self._waiting) >= MAX_WAITING or self._closing:
            return False
        heapq.heappush(self._waiting, _Message(due, next(self._numbers), send))
        self._wakeup.notify()
        return True

    def _run(self) -> None:
        while (message := self._next()) is not None:
            try:
                message.send()
                self._failing = False
            except Exception as error:  # whatever a driver raises: polling goes on
                self._retry_later(message, error)
        self._redis.close()
        self._celery.close()

    def _next(self) -> _Message | None:
        with self._wakeup:
            while True:
                pause = self._retry_at - time.monotonic()
                wait = max(pause, self._waiting[0].due - time.monotonic()) if self._waiting else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._waiting)
                if self._closing:
                    return None
                self._wakeup.wait(wait)

    def _retry_later(self, message: _Message, error: Exception) -> None:
        if not self._failing:
            log.warning("redis does not answer; other processes find changes by polling", error=first_line(error))
        self._failing = True
        with self._wakeup:
            self._retry_at = time.monotonic() + SECONDS_BETWEEN_RETRIES
            heapq.heappush(self._waiting, replace(message, due=self._retry_at))  # behind those not tried yet

    def _publish(self, model: str) -> None:
        with self._wakeup:
            self._changed.discard(model)  # before it is sent: a change from now on needs a message of its own
        try:
            self._redis.publish(CHANNEL, model)
        except Exception:
            with self._wakeup:
                self._changed.add(model)
            raise

    def _announce(self, session_id: int, queue: str) -> None:
        if self._redis.llen(f"{PREFIX}{queue}") < MAX_UNREAD:
            self._celery.send_task(TASK, args=[session_id], queue=queue)


def make_notifier(url: str) -> Notifier:
    return RedisNotifier(url) if url else NullNotifier()
