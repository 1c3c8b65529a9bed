"""Celery's end of the queue: hears which session is ready and runs it, in this process and no other.

Messages are hints, and are acknowledged before the work: a session that is left behind is found in the table. While
Redis is away a thread beside this one goes on looking there.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence

import structlog
from celery.signals import worker_shutting_down

from hints.broker import TASK, celery_app
from store.models import SessionId
from workers.session_job import SessionWorker

log = structlog.get_logger()

SECONDS_TO_ANSWER = 10.0  # more than the second that Redis is asked to hold a question open


def consume(
    url: str, queues: Sequence[str], worker: SessionWorker, stop: threading.Event, poll: Callable[[], None]
) -> None:
    """Run what is announced until told to stop by a signal, or until `poll` ends."""
    app = celery_app(url, seconds_to_answer=SECONDS_TO_ANSWER)

    @app.task(name=TASK)  # type: ignore[untyped-decorator]
    def session(session_id: int) -> None:
        if not worker.run_next(SessionId(session_id)):
            log.debug("nothing to do for this message", session=session_id)

    def stopping(**_: object) -> None:
        log.info("stopping")
        stop.set()  # a session in progress gives itself back between two steps

    def poll_to_the_end() -> None:
        poll()
        if not stop.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    worker_shutting_down.connect(stopping, weak=False)
    polling = threading.Thread(target=poll_to_the_end, name="polling", daemon=True)
    controller = app.Worker(
        queues=list(queues),
        hostname=f"protoquad-{os.getpid()}@%h",
        loglevel=logging.WARNING,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        optimization="fair",
    )
    polling.start()
    try:
        controller.start()
    finally:
        stop.set()
        polling.join()
