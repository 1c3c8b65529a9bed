"""`pq` as somebody types it: within this process, or in one of its own that can be killed."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from protoquad_client.commands.pq import pq

from tests.service.conftest import Learner, Service

SECONDS = 60.0  # bound of every wait: reached only by a test that fails
CLIENT = Path(__file__).parents[2] / "client"


def run_pq(
    *arguments: str | Path, stdin: bytes | None = None, color: bool = False, **environment: str | None
) -> Result:
    """Standard output and standard error apart; with `color`, as if both were a terminal."""
    clean = {"PROTOQUAD_URL": None, "PROTOQUAD_KEY": None, "NO_COLOR": None, **environment}
    return CliRunner(env=clean).invoke(pq, [str(one) for one in arguments], input=stdin, color=color)


@dataclass(frozen=True)
class CommandLine:
    """Commands about one model of a service."""

    service: Service
    learner: Learner

    @property
    def options(self) -> list[str]:
        return ["--url", self.service.url, "--model", self.learner.name]

    def __call__(self, *arguments: str | Path, stdin: bytes | None = None) -> Result:
        return run_pq(*arguments, *self.options, stdin=stdin)

    def json(self, *arguments: str | Path) -> Any:
        done = self(*arguments, "--json")
        assert done.exit_code in (0, 3), done.output
        return json.loads(done.stdout)

    def start(self, *arguments: str | Path, **streams: Any) -> "subprocess.Popen[str]":
        """A process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "protoquad_client.commands", *map(str, arguments), *self.options],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT), os.environ.get("PYTHONPATH", "")])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **streams,
        )

    def kinds(self) -> list[str]:
        """The kinds of all versions, oldest first."""
        return [one["kind"] for one in reversed(self.learner.get("/versions", limit=500)["items"])]

    @contextmanager
    def worker(self) -> Iterator[None]:
        """A worker that runs sessions as they come."""
        stopped = threading.Event()
        thread = threading.Thread(target=self._work, args=(stopped.is_set,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join(SECONDS)

    def _work(self, stopped: Callable[[], bool]) -> None:
        while not stopped():
            for session in self.learner.get("/sessions")["items"]:
                if session["status"] == "queued":
                    self.service.worker.run_next(session["id"])
            threading.Event().wait(0.05)
