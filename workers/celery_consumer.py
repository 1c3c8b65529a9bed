"""Celery's end of the queue: receives the ids of ready sessions and hands them to the worker's loop.

A message is gone once it is read: a session whose message gets lost is found by polling. Celery runs in a thread beside
the loop, so whatever happens to Redis, the loop goes on polling.
"""

import os
import socket
import threading
from collections.abc import Sequence
from typing import Any, Self

import structlog
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer
from kombu.asynchronous import set_event_loop

from messaging.broker import SECONDS_TO_CONSUME, TASK, celery_app, connected, first_line
from store.models import SessionId
from workers.wakeups import Wakeups

log = structlog.get_logger()

SECONDS_BETWEEN_TRIES = 1.0
SECONDS_PER_WAIT = 0.5  # how soon a message that waits for the loop notices that the worker stops
SECONDS_TO_STOP = 3.0  # after which the process ends without it


class CeleryConsumer:
    """Puts announced sessions into the wakeups, whenever Redis answers."""

    def __init__(self, url: str, queues: Sequence[str], wakeups: Wakeups, stop: threading.Event) -> None:
        self._url = url
        self._queues = list(queues)
        self._wakeups = wakeups
        self._stop = stop
        self._failing = False
        self._hub: Any = None
        self._celery = celery_app(url, seconds_to_answer=SECONDS_TO_CONSUME)
        self._celery.conf.worker_consumer = _OneConnection
        self._celery.task(name=TASK, shared=False)(self._announced)  # a shared task would belong to every later app too
        self._thread = threading.Thread(target=self._run, name="celery", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        hub = self._hub
        if hub is not None:
            hub.call_soon(_end)
        self._thread.join(SECONDS_TO_STOP)

    def _announced(self, session_id: int) -> None:
        """Waits for the loop, so that further messages stay in the queue for other workers."""
        announced = self._wakeups.announce(SessionId(session_id))
        while not announced.handled.wait(SECONDS_PER_WAIT) and not self._stop.is_set():
            pass

    def _run(self) -> None:
        self._celery.set_current()  # in this thread: Celery looks up the task of a message there
        while not self._stop.is_set():
            try:
                with connected(self._url) as redis:
                    redis.ping()
                self._consume()
            except Exception as error:  # whatever a driver raises: polling goes on
                self._lost(error)
            self._stop.wait(SECONDS_BETWEEN_TRIES)

    def _consume(self) -> None:
        """Until the connection is lost or the worker stops."""
        set_event_loop(None)  # the loop of an earlier connection is closed
        controller = self._celery.WorkController(
            queues=self._queues,
            hostname=f"protoquad-{os.getpid()}@{socket.gethostname()}",
            ready_callback=self._listening,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        try:
            controller.start()
        finally:
            self._hub = None
        if controller.consumer.lost is not None:
            raise controller.consumer.lost

    def _listening(self, consumer: Any) -> None:
        log.info("redis is back" if self._failing else "listening on redis", queues=self._queues)
        self._failing = False
        self._hub = consumer.hub
        if self._stop.is_set():  # it was set before there was a hub to wake
            _end()

    def _lost(self, error: Exception) -> None:
        if not self._failing and not self._stop.is_set():
            log.warning("redis does not answer; the table is polled instead", error=first_line(error))
        self._failing = True


class _OneConnection(Consumer):  # type: ignore[misc]
    """Ends with its connection: its caller logs that in one line and decides when to try again."""

    lost: Exception | None = None

    def start(self) -> None:
        try:
            self.blueprint.start(self)
        except (*self.connection_errors, *self.channel_errors) as error:
            self.lost = error
            _end()


def _end() -> None:
    raise WorkerShutdown(os.EX_OK)
