"""The judge's end of the attacker's process."""

import json
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

SECONDS_TO_GET_READY = 120.0  # bombs are made meanwhile
SECONDS_TO_END = 120.0


class AttackersProcess:
    """A process of its own: the friend's time is not the attacker's."""

    def __init__(self, host: str, port: int, log: Path) -> None:
        self.log = log
        self._command = [sys.executable, "-m", "tests.hostile.attacker", host, str(port)]
        self._process = self._start()

    def get_ready(self, name: str, seconds: float, scale: float, key: str) -> None:
        if self._process.poll() is not None:  # an attack before this one has failed
            self._process = self._start()
        self._say(json.dumps([name, seconds, scale, key]))
        assert self._hear(SECONDS_TO_GET_READY) == "ready\n", self._complaint()

    def attack(self, seconds: float) -> Counter[str]:
        """What it was answered, and how often."""
        self._say("go")
        heard = self._hear(seconds + SECONDS_TO_END)
        assert heard, self._complaint()
        return Counter(json.loads(heard))

    def close(self) -> None:
        self._process.communicate(timeout=SECONDS_TO_END)  # the end of its input is the end of its work

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        with self.log.open("a") as log:
            return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=log, text=True)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def _hear(self, seconds: float) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline() if ready else ""

    def _complaint(self) -> str:
        return f"the attacker did not do its work: {self.log.read_text()[-2000:]}"
