"""One load on one server: what is requested, and what was measured."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from bench.load.servers import Server

Report = Callable[[str], None]  # prints a line about what was just measured


@dataclass(frozen=True)
class Load:
    """Either `callers` that each send the next request as soon as the last is answered, or requests at a `rate`."""

    seconds: float
    warm: float = 1.0  # seconds of load before anything is measured
    callers: int | None = None
    rate: float | None = None  # requests per second
    until: str | None = None  # a file: callers stop early when it exists


@dataclass(frozen=True)
class LoadResult:
    answers: int
    wrong: int  # other answers than expected, and requests without an answer
    seconds: float
    latencies: tuple[float, ...]  # in milliseconds: p50, p90, p99 and the maximum
    first_error: str | None

    @property
    def rate(self) -> float:
        return self.answers / self.seconds

    @property
    def p50(self) -> float:
        return self.latencies[0]

    @property
    def p99(self) -> float:
        return self.latencies[2]

    def __str__(self) -> str:
        wrong = f", {self.wrong} WRONG ({self.first_error})" if self.wrong else ""
        return f"{self.rate:.1f} answers/s, p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms{wrong}"


def measure(server: Server, images: Sequence[bytes], load: Load, *, first_class: int | None = 1) -> LoadResult:
    """Load a server from a process of its own.

    The images show consecutive classes, beginning with `first_class`; None: they may show anything.
    """
    plan = {
        "port": server.port,
        "field": server.field,
        "ours": server.ours,
        "path": server.path,
        "images": [base64.b64encode(image).decode() for image in images],
        "first_class": first_class,
        "load": asdict(load),
    }
    command = [sys.executable, "-m", "bench.load.load_driver"]
    process = subprocess.run(command, input=json.dumps(plan).encode(), capture_output=True, check=False)
    if process.returncode:
        raise RuntimeError(f"the load driver failed: {process.stderr.decode(errors='replace')[-2000:]}")
    return LoadResult(**json.loads(process.stdout.splitlines()[-1]))
