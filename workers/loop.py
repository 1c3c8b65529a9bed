"""A worker's life: hear of a session or look for one, run it, look again."""

import contextlib
import os
import signal
import socket
import threading
from functools import partial
from types import FrameType

import structlog

from hints.sending import hints
from store.database import Database
from store.settings import Settings
from workers.consuming import consume
from workers.pulse import Pulse, Watchdog
from workers.session_job import SessionWorker

log = structlog.get_logger()


def work(database: Database, settings: Settings, *, parent: int | None = None) -> None:
    """Run sessions until told to stop, or until the process that started this one is gone."""
    stop = threading.Event()
    pulse = Pulse(settings.home)
    with contextlib.closing(hints(settings.broker_url)) as telling, Watchdog(pulse, settings.stall_seconds):
        owner = f"{socket.gethostname()}:{os.getpid()}"
        worker = SessionWorker(database, settings, owner, stop=stop, pulse=pulse, hints=telling)
        log.info("worker ready", owner=owner, device=str(worker.device), queues=list(worker.queues))
        poll = partial(_poll, worker, settings.poll_seconds, parent)
        if settings.broker_url:
            consume(settings.broker_url, worker.queues, worker, stop, poll)
        else:
            _stop_on_signals(stop)
            poll()


def _stop_on_signals(stop: threading.Event) -> None:
    def told(number: int, _: FrameType | None) -> None:
        log.info("stopping", signal=signal.Signals(number).name)
        stop.set()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)


def _poll(worker: SessionWorker, seconds: float, parent: int | None) -> None:
    while not worker.stop.is_set():
        if parent is not None and os.getppid() != parent:
            log.warning("the service that started this worker is gone; stopping")
            return
        if not worker.busy:
            worker.pulse.beat()
        if not _found_one(worker):
            worker.stop.wait(seconds)


def _found_one(worker: SessionWorker) -> bool:
    try:
        return worker.run_next()
    except Exception as error:  # the database is away: the table is still the truth when it is back
        log.warning("no session can be claimed", error=str(error).partition("\n")[0])
        return False
