"""A worker whose sessions do not end by themselves: `slow`, they go forward for ever; `hang`, they stand still."""

import sys
import threading
from typing import Any

from core.progress import Progress, Report
from protoquad.worker_command import worker
from workers import session_worker as session_job


def slow(*_: Any, report: Report, **__: Any) -> None:
    while True:
        report(Progress(1, 2, 1, 2, {}))
        threading.Event().wait(0.05)


def hang(*_: Any, **__: Any) -> None:
    threading.Event().wait()


if __name__ == "__main__":
    session_job.refine = {"slow": slow, "hang": hang}[sys.argv[1]]  # type: ignore[assignment]
    worker()
