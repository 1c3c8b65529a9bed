"""A worker whose sessions do not end by themselves: `slow` ones report progress for ever, `hang` ones do nothing."""

import sys
import threading
from typing import Any, NoReturn

from core.progress import Progress
from learners.refining import SessionProgress
from protoquad.worker_command import worker
from workers import loop
from workers.session_worker import SessionWorker


def slow(_material: Any, _backbones: Any, _config: Any, progress: SessionProgress) -> NoReturn:
    while True:
        progress.report(Progress(1, 2, 1, 2, {}))
        threading.Event().wait(0.05)


def hang(*_: Any) -> NoReturn:
    threading.Event().wait()
    raise AssertionError("it waits for ever")


class EndlessWorker(SessionWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, learn={"slow": slow, "hang": hang}[sys.argv[1]], **options)


if __name__ == "__main__":
    loop.SessionWorker = EndlessWorker  # type: ignore[misc]
    worker()
