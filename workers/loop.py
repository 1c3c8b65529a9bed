"""A worker's life: look for a session, run it, look again; no broker needed."""

import os
import signal
import socket
import threading
from types import FrameType

import structlog

from store.database import Database
from store.settings import Settings
from workers.session_job import SessionWorker

log = structlog.get_logger()


def work(database: Database, settings: Settings, *, parent: int | None = None) -> None:
    """Run sessions until told to stop, or until the process that started this one is gone."""
    stop = threading.Event()

    def told(number: int, _: FrameType | None) -> None:
        log.info("stopping", signal=signal.Signals(number).name)
        stop.set()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
    worker = SessionWorker(database, settings, owner=f"{socket.gethostname()}:{os.getpid()}", stop=stop)
    log.info("worker ready", owner=worker.owner, device=str(worker.device))
    while not stop.is_set():
        if parent is not None and os.getppid() != parent:
            log.warning("the service that started this worker is gone; stopping")
            return
        if not _found_one(worker):
            stop.wait(settings.poll_seconds)


def _found_one(worker: SessionWorker) -> bool:
    try:
        return worker.run_next()
    except Exception as error:  # the database is away: the table is still the truth when it is back
        log.warning("no session can be claimed", error=str(error))
        return False
