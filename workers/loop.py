"""A worker's life: hear of a session or look for one, run it, look again."""

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
from workers.celery_consumer import Announcements
from workers.heartbeat import Heartbeat, Watchdog
from workers.session_worker import SessionWorker
from workers.wakeups import Inbox

log = structlog.get_logger()

SECONDS_BETWEEN_BEATS = 1.0  # of an idle worker, however seldom it looks


def work(database: Database, settings: Settings, *, parent: int | None = None) -> None:
    """Run sessions until told to stop, or until the process that started this one is gone."""
    stop, inbox = threading.Event(), Inbox()
    _stop_on_signals(stop, inbox)
    pulse = Heartbeat(settings.home)
    with contextlib.closing(make_notifier(settings.broker_url)) as telling, Watchdog(pulse, settings.stall_seconds):
        owner = f"{socket.gethostname()}:{os.getpid()}"
        worker = SessionWorker(database, settings, owner, stop=stop, pulse=pulse, notifier=telling)
        log.info("worker ready", owner=owner, device=str(worker.device), queues=list(worker.queues))
        with _announcements(worker, inbox):
            _Loop(worker, inbox, parent).run()
            log.info("stopping")


def _stop_on_signals(stop: threading.Event, inbox: Inbox) -> None:
    def told(_number: int, _frame: FrameType | None) -> None:  # no line is logged here: it may interrupt another
        stop.set()  # a session in progress gives itself back between two steps
        inbox.wake()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)


def _announcements(worker: SessionWorker, inbox: Inbox) -> contextlib.AbstractContextManager[object]:
    url = worker.settings.broker_url
    return Announcements(url, worker.queues, inbox, worker.stop) if url else contextlib.nullcontext()


class _Loop:
    def __init__(self, worker: SessionWorker, inbox: Inbox, parent: int | None) -> None:
        self.worker = worker
        self.inbox = inbox
        self.parent = parent
        self.patience = min(SECONDS_BETWEEN_BEATS, worker.settings.stall_seconds / 5)
        self._next_look = time.monotonic()

    def run(self) -> None:
        while not self.worker.stop.is_set():
            if self.parent is not None and os.getppid() != self.parent:
                log.warning("the service that started this worker is gone; stopping")
                return
            self.worker.pulse.beat()
            self._turn()

    def _turn(self) -> None:
        letter = self.inbox.next(min(self._next_look - time.monotonic(), self.patience))
        if self.worker.stop.is_set():
            return
        if letter is not None:
            found = self._ran(letter.session_id)
            letter.seen_to.set()
        elif time.monotonic() >= self._next_look:
            found = self._ran()
            self._next_look = time.monotonic() + self.worker.settings.poll_seconds
        else:
            return
        if found:  # the next one of its model may have waited for it
            self._next_look = time.monotonic()

    def _ran(self, session_id: SessionId | None = None) -> bool:
        try:
            return self.worker.run_next(session_id)
        except Exception as error:  # the database is away: the table is still the truth when it is back
            log.warning("no session can be claimed", error=first_line(error))
            return False
