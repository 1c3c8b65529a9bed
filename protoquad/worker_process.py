"""The worker that `serve` starts beside itself: another process, so that learning never holds up an answer."""

import os
import subprocess
import sys
import threading
import time
from typing import Self

import structlog

from store.settings import Settings

log = structlog.get_logger()

SECONDS_TO_STOP = 20
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # before starting a worker again that has ended


class WorkerProcess:
    """Started anew whenever it ends, until it is no longer wanted."""

    def __init__(self, settings: Settings) -> None:
        self._environment = {
            **os.environ,
            "PROTOQUAD_HOME": str(settings.home),
            "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin while they wait would take the API's cores
        }
        self._wanted = True
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_running, name="worker", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join()

    def _keep_running(self) -> None:
        pause = SHORTEST_PAUSE
        while not self._stopped.is_set():
            command = [sys.executable, "-m", "protoquad", "worker", "--parent", str(os.getpid())]
            # A group of its own: Ctrl-C on the terminal reaches `serve`, which stops the worker in its own time.
            began = time.monotonic()
            self._process = subprocess.Popen(command, env=self._environment, process_group=0)
            code = self._process.wait()
            if self._stopped.is_set():
                return
            if time.monotonic() - began > LONGEST_PAUSE:  # it ran well for a while: this is a new trouble
                pause = SHORTEST_PAUSE
            log.warning("the worker has ended; starting it again", exit_code=code, seconds=pause)
            self._stopped.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
