"""Celery's end of the queue: hears which session is ready and hands it to the loop that works.

Messages are hints, and are gone when they are read: a session that is left behind is found in the table. Celery runs in
a thread beside the loop, so whatever Redis does or does not do, the loop goes on looking there.
"""

import os
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import structlog
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer
from kombu.asynchronous import set_event_loop

from messaging.broker import SECONDS_TO_CONSUME, TASK, celery_app, connected, first_line
from store.models import SessionId
from workers.wakeups import Inbox

log = structlog.get_logger()

SECONDS_BETWEEN_TRIES = 1.0
SECONDS_PER_LOOK = 0.5  # how soon a message that waits for the loop notices that the worker stops
SECONDS_TO_STOP = 3.0  # then it is left where it hangs: the process ends without it


class Announcements:
    """Puts announced sessions into the inbox, whenever Redis is there."""

    def __init__(self, url: str, queues: Sequence[str], inbox: Inbox, stop: threading.Event) -> None:
        self._url = url
        self._queues = list(queues)
        self._inbox = inbox
        self._stop = stop
        self._away = False
        self._hub: Any = None
        self._celery = celery_app(url, seconds_to_answer=SECONDS_TO_CONSUME)
        self._celery.conf.worker_consumer = _OneConnection
        self._celery.task(name=TASK, shared=False)(self._announced)  # shared, it would be that of every app to come
        self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        hub = self._hub
        if hub is not None:
            hub.call_soon(_end)
        self._thread.join(SECONDS_TO_STOP)

    def _announced(self, session_id: int) -> None:
        """Waits for the loop, so that further messages stay in the queue, for workers that are free."""
        letter = self._inbox.announce(SessionId(session_id))
        while not letter.seen_to.wait(SECONDS_PER_LOOK) and not self._stop.is_set():
            pass

    def _run(self) -> None:
        self._celery.set_current()  # of this thread: it is where Celery looks a message's task up
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
        set_event_loop(None)  # that of a connection before is closed
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
        log.info("redis is back" if self._away else "listening on redis", queues=self._queues)
        self._away = False
        self._hub = consumer.hub
        if self._stop.is_set():  # before there was a hub to wake
            _end()

    def _lost(self, error: Exception) -> None:
        if not self._away and not self._stop.is_set():
            log.warning("redis does not answer; the table is polled instead", error=first_line(error))
        self._away = True


class _OneConnection(Consumer):  # type: ignore[misc]
    """Ends with its connection: who started it says so in one line, and knows when to try again."""

    lost: Exception | None = None

    def start(self) -> None:
        try:
            self.blueprint.start(self)
        except (*self.connection_errors, *self.channel_errors) as error:
            self.lost = error
            _end()


def _end() -> None:
    raise WorkerShutdown(os.EX_OK)
