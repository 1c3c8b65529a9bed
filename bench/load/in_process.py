"""The in-process limit as the benchmarks ask for it: a process of its own that waits, at no cost, for its turn."""

import base64
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.load.limit import What


class InProcess:
    """What could be reached with no HTTP."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def measured(self, what: What, *, warm: float, seconds: float) -> float:
        self._say({"what": what, "warm": warm, "seconds": seconds})
        return self.heard()

    def _say(self, what: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # that it has ended is told by what is heard
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()

    def heard(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the in-process limit ended with code {self._process.wait()}; its errors stand above")
        return float(line)

    @classmethod
    @contextlib.contextmanager
    def of(cls, backbone: str, prototypes: Path, pictures: Sequence[bytes]) -> "Iterator[InProcess]":
        command = [sys.executable, "-m", "bench.load.limit", backbone, str(prototypes)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                found = cls(process)
                found._say([base64.b64encode(picture).decode() for picture in pictures])
                found.heard()
                yield found
            finally:
                process.kill()
