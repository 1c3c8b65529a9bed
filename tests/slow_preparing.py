"""Preparing a backbone, as slow as a test wants it: a real process in place of the one that prepares."""

import sys
from pathlib import Path

import psutil
import pytest

from engine import preparation as preparing
from tests.waiting import until


class SlowCommand:
    """In place of the process that prepares: a real one, with a child, that goes on until a file says how it ends."""

    SCRIPT = """
import os, pathlib, shutil, subprocess, sys, time
name, folder, notes, ready = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[-2]), sys.argv[-1]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(notes / "started", "a") as started:
    print(name, os.getpid(), child.pid, file=started)
while not (notes / "end").exists():
    time.sleep(0.01)
child.kill()
if (notes / "end").read_text() == "fail":
    print("there is a reason")
    sys.exit(3)
shutil.copytree(ready, folder, dirs_exist_ok=True)
"""

    def __init__(self, notes: Path, ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notes = notes
        self.ready = ready
        wrapper = f"import sys; sys.argv += [{str(notes)!r}, {str(ready)!r}]; exec({self.SCRIPT!r})"
        monkeypatch.setattr(preparing, "COMMAND", (sys.executable, "-c", wrapper))

    @property
    def started(self) -> list[list[str]]:
        """Name, process and its child, of each that was started."""
        file = self.notes / "started"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def wait_until_started(self) -> None:
        until(lambda: self.started, "a process prepares a backbone")

    def end(self, how: str = "well") -> None:
        (self.notes / "unread").write_text(how)
        (self.notes / "unread").rename(self.notes / "end")

    def wait_until_gone(self) -> None:
        pids = [int(pid) for _, *both in self.started for pid in both]
        until(lambda: not any(runs(pid) for pid in pids), "the process and its child are gone")


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # a zombie waits for init alone
    except psutil.NoSuchProcess:
        return False
