"""A worker's pulse beats when work goes forward, not because a process is there.

A session that hangs holds its model's queue for as long as its lease is renewed. So a worker that makes no step for too
long ends itself: the lease runs out, another takes over, and whoever started this one starts it again.
"""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

log = structlog.get_logger()

STALLED = 75  # the exit code of a worker that hung: "temporary failure", try again
SECONDS_BETWEEN_TOUCHES = 1.0


class Heartbeat:
    """Beats from any thread; a file's time tells it to other processes."""

    def __init__(self, home: Path) -> None:
        # With the host's name: containers that share a home all call their worker process 1.
        self.file = pulse_folder(home) / f"{socket.gethostname()}-{os.getpid()}.pulse"
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
                log.warning("the pulse cannot be written", file=str(self.file), error=error.strerror)


class Watchdog:
    """Ends this process when its pulse stops."""

    def __init__(self, pulse: Heartbeat, seconds: float) -> None:
        self.pulse = pulse
        self.seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self.pulse.beat()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.pulse.file.unlink(missing_ok=True)

    def _watch(self) -> None:
        interval = min(self.seconds / 5, 10.0)
        last, quiet = self.pulse.last, 0.0
        while not self._done.wait(interval):
            # Counted in looks, not by the clock: a process that was paused as a whole has not hung.
            quiet = quiet + interval if self.pulse.last == last else 0.0
            last = self.pulse.last
            if quiet >= self.seconds:
                log.critical("no step for too long; this worker ends", seconds=round(quiet))
                os._exit(STALLED)  # whatever hangs would hang a tidy exit too


def pulse_folder(home: Path) -> Path:
    return home / "workers"


def pulses(home: Path) -> dict[str, float]:
    """Seconds since the last step of each worker that runs on this home, by the name of its file."""
    ages = {}
    for file in sorted(pulse_folder(home).glob("*.pulse")):
        with contextlib.suppress(FileNotFoundError):  # its worker has just ended
            # A time in the future was written before the clock was set back: a worker that lives writes another soon.
            ages[file.stem] = abs(time.time() - file.stat().st_mtime)
    return ages
