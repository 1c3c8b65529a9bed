"""A worker's heartbeat: it beats when the work makes progress, not because the process exists.

A session that hangs blocks its model's queue for as long as its lease is renewed. So a worker that makes no progress
for too long exits: the lease runs out, another worker takes over, and this one is started again by its supervisor.
"""

import os
import socket
import threading
import time
from pathlib import Path
from typing import Self

import structlog

from store.heartbeats import heartbeat_folder

log = structlog.get_logger()

STALLED = 75  # the exit code of a worker that hung: "temporary failure", try again
SECONDS_BETWEEN_TOUCHES = 1.0


class Heartbeat:
    """Beats from any thread. Other processes see it in the modification time of a file."""

    def __init__(self, home: Path) -> None:
        # With the host's name: containers that share a home all call their worker process 1.
        self.file = heartbeat_folder(home) / f"{socket.gethostname()}-{os.getpid()}.heartbeat"
        self.last = time.monotonic()
        self._touched = float("-inf")

    def beat(self) -> None:
        self.last = time.monotonic()
        if self.last - self._touched >= SECONDS_BETWEEN_TOUCHES:
            self._touched = self.last
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self.file.touch()
            except OSError as error:  # a full disk is no reason to stop learning
                log.warning("the heartbeat cannot be written", file=str(self.file), error=error.strerror)


class Watchdog:
    """Ends this process when its heartbeat stops."""

    def __init__(self, heartbeat: Heartbeat, seconds: float) -> None:
        self.heartbeat = heartbeat
        self.seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self.heartbeat.beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.heartbeat.file.unlink(missing_ok=True)

    def _watch(self) -> None:
        interval = min(self.seconds / 5, 10.0)
        last, quiet = self.heartbeat.last, 0.0
        while not self._done.wait(interval):
            # Counted in looks, not by the clock: a process that was paused as a whole has not hung.
            quiet = quiet + interval if self.heartbeat.last == last else 0.0
            last = self.heartbeat.last
            if quiet >= self.seconds:
                log.critical("no step for too long; this worker ends", seconds=round(quiet))
                os._exit(STALLED)  # whatever hangs would hang a tidy exit too
