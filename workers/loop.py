"""A worker's loop: run sessions that are announced, and poll for others."""

import contextlib
import os
import signal
import socket
import threading
import time
from types import FrameType

import structlog

from messaging.broker import first_line
from messaging.notifier import make_notifier
from store.database import Database
from store.models import SessionId
from store.settings import Settings
from workers.heartbeat import Heartbeat, Watchdog
from workers.session_worker import SessionWorker
from workers.wakeups import Wakeups

log = structlog.get_logger()

SECONDS_BETWEEN_BEATS = 1.0  # of an idle worker, however seldom it polls


def work(database: Database, settings: Settings, *, parent: int | None = None) -> None:
    """Run sessions until told to stop, or until the process that started this one is gone."""
    wakeups, heartbeat = Wakeups(), Heartbeat(settings.home)
    owner = f"{socket.gethostname()}:{os.getpid()}"
    with (
        contextlib.closing(make_notifier(settings.broker_url)) as notifier,
        Watchdog(heartbeat, settings.stall_seconds),
    ):
        worker = SessionWorker(database, settings, owner, heartbeat=heartbeat, notifier=notifier)
        _stop_on_signals(worker.stop, wakeups)
        log.info("worker ready", owner=owner, device=str(worker.device), queues=list(worker.queues))
        with _consuming(worker, wakeups):
            _Loop(worker, wakeups, parent).run()
            log.info("stopping")


def _stop_on_signals(stop: threading.Event, wakeups: Wakeups) -> None:
    def handle(_number: int, _frame: FrameType | None) -> None:  # logs nothing: it may interrupt a log call
        stop.set()  # a session in progress gives itself back between two steps
        wakeups.wake()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def _consuming(worker: SessionWorker, wakeups: Wakeups) -> contextlib.AbstractContextManager[object]:
    url = worker.settings.broker_url
    if not url:
        return contextlib.nullcontext()
    from workers.celery_consumer import CeleryConsumer  # Celery takes a third of a second

    return CeleryConsumer(url, worker.queues, wakeups, worker.stop)


class _Loop:
    def __init__(self, worker: SessionWorker, wakeups: Wakeups, parent: int | None) -> None:
        self.worker = worker
        self.wakeups = wakeups
        self.parent = parent
        self.longest_wait = min(SECONDS_BETWEEN_BEATS, worker.settings.stall_seconds / 5)
        self._next_poll = time.monotonic()

    def run(self) -> None:
        while not self.worker.stop.is_set():
            if self.parent is not None and os.getppid() != self.parent:
                log.warning("the service that started this worker is gone; stopping")
                return
            self.worker.heartbeat.beat()
            self._turn()

    def _turn(self) -> None:
        announced = self.wakeups.next(min(self._next_poll - time.monotonic(), self.longest_wait))
        if self.worker.stop.is_set():
            return
        if announced is not None:
            found = self._run_next(announced.session_id)
            announced.handled.set()
        elif time.monotonic() >= self._next_poll:
            found = self._run_next()
            self._next_poll = time.monotonic() + self.worker.settings.poll_seconds
        else:
            return
        if found:  # another session of its model may have waited for it
            self._next_poll = time.monotonic()

    def _run_next(self, session_id: SessionId | None = None) -> bool:
        try:
            return self.worker.run_next(session_id)
        except Exception as error:  # the database is away: the sessions are still there when it is back
            log.warning("no session can be claimed", error=first_line(error))
            return False
