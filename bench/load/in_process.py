"""The in-process limit as benchmarks use it: a process of its own that waits for its turn and uses no CPU meanwhile."""

import base64
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.load.in_process_main import Quantity


class InProcess:
    """The speed without HTTP."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def measure(self, quantity: Quantity, *, warm: float, seconds: float) -> float:
        self._send({"quantity": quantity, "warm": warm, "seconds": seconds})
        return self._receive()

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # receiving then reports that the process has ended
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _receive(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the in-process limit ended with code {self._process.wait()}; see its errors above")
        return float(line)

    @classmethod
    @contextlib.contextmanager
    def start(cls, backbone: str, prototypes: Path, images: Sequence[bytes]) -> "Iterator[InProcess]":
        command = [sys.executable, "-m", "bench.load.in_process_main", backbone, str(prototypes)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                started = cls(process)
                started._send([base64.b64encode(image).decode() for image in images])
                started._receive()
                yield started
            finally:
                process.kill()
