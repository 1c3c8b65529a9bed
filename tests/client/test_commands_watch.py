"""`pq watch`: what happens to a model, as it happens, in a process of its own."""

import json
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from protoquad_client.commands.session_text import progress_text

from tests.client.command_line import SECONDS, CommandLine
from tests.waiting import until


class Watching:
    """The lines that it prints, as they come."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._news: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._news.put(line)

    def wait_for(self, text: str) -> None:
        while not any(text in line for line in self.lines):
            self.lines.append(self._news.get(timeout=SECONDS))


@contextmanager
def watching(command_line: CommandLine, *options: str) -> Iterator[Watching]:
    """From when it has connected."""
    streams = command_line.service.context.session_watch.streams
    before = streams.taken
    process = command_line.start("watch", *options)
    with process:
        try:
            until(lambda: streams.taken > before, "it is connected")
            yield Watching(process)
        finally:
            process.kill()


def test_teaching_sessions_and_versions_are_shown_until_ctrl_c(command_line: CommandLine) -> None:
    """With names, stages and the verdict; and Ctrl-C ends it without a word."""
    with watching(command_line) as watch:
        command_line.learner.taught("red", "green")
        with command_line.worker():
            watch.wait_for("succeeded")
        watch.process.send_signal(signal.SIGINT)
        code = watch.process.wait(SECONDS)
        errors = watch.process.stderr.read() if watch.process.stderr else ""

    seen = [line[10:].strip() for line in watch.lines]
    assert code == 0
    assert "Traceback" not in errors
    assert "'red' was taught or changed" in seen
    assert "version 1 (provisional)" in seen
    assert any(" queued" in line for line in seen)
    assert any(line.endswith("  learning") for line in seen)
    assert any("succeeded, promoted" in line for line in seen)
    assert "version 3 (incremental, promoted)" in seen
    assert "version 3 is active" in seen
    assert not any("\x1b" in line for line in watch.lines)


def test_losses_are_shown_beside_the_stage() -> None:
    """With the share that is done."""
    step = {"stage": "learning", "fraction": 0.5, "epoch": 1, "epochs": 2, "losses": {"query": 0.25, "drift": 0.0125}}

    assert progress_text(step) == "learning  50 %  epoch 1/2  query 0.250  drift 0.013"


def test_programs_get_an_object_for_each_event(command_line: CommandLine) -> None:
    """As the service sends them."""
    with watching(command_line, "--json") as watch:
        command_line.learner.taught("red")
        watch.wait_for('"taught"')

    found = [json.loads(line) for line in watch.lines]
    assert {"event": "taught", "model": command_line.learner.name, "class_id": 1, "version": 1} in found
