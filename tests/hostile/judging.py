"""One attack after another on a real service, each judged by what a friendly client saw of it meanwhile."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from migrations import schema
from store import api_keys
from store.database import Database
from tests.hostile.attackers_process import AttackersProcess
from tests.hostile.attacks import ATTACKS
from tests.hostile.friend import Friend
from tests.processes import Service, picture

GIGABYTE = 2**30
SECONDS_TO_CLOSE = 60.0
HARMLESS = {"200", "201", "202", "204", "closed", "503 with Retry-After"}


@dataclass(frozen=True)
class Bounds:
    """What must hold; `least_quiet` keeps a noisy machine from being judged by microseconds."""

    livez: float = 0.5  # seconds; on a machine that takes long without an attack too, `times_quiet` of that
    times_quiet: float = 5.0
    least_quiet: float = 0.05
    memory: int = GIGABYTE


@dataclass(frozen=True)
class Report:
    attack: str
    livez: float
    predict: float
    quiet: float
    memory: int
    answers: Counter[str]
    faults: list[str]

    def __str__(self) -> str:
        answers = ", ".join(f"{status} x {count}" for status, count in sorted(self.answers.items()))
        line = (
            f"{self.attack:40} livez {self.livez:5.2f} s   predict {self.predict / self.quiet:5.1f} x quiet   "
            f"memory {self.memory / GIGABYTE:+5.2f} GB   {answers}"
        )
        return "\n".join([line, *(f"    FAILED: {fault}" for fault in self.faults)])


class Besieged:
    """A service with keys, two classes and a dozen versions."""

    def __init__(self, home: Path, seconds_of_quiet: float = 4, **settings: str) -> None:
        self.key, self.attackers_key = _two_keys(home)
        self.service = Service({"PROTOQUAD_HOME": str(home), "PROTOQUAD_WORKER": "false", **settings})
        self.service.client.headers["Authorization"] = f"Bearer {self.key}"
        for colour in ("red", "blue"):
            taught = self.service.teach(colour, colour)
            assert taught.status_code == 202, taught.text
        for number in range(10):
            shot = [("shots", (f"{number}.png", picture("red", 50 + number), "image/png"))]
            assert self.service.client.post("/classes/1/shots", files=shot).status_code == 202
        self.process = psutil.Process(self.service.process.pid)
        address = httpx.URL(self.service.url)
        self.host, self.port = address.host, address.port or 80
        self.attacker = AttackersProcess(self.host, self.port, home / "attacker.log")
        with self._friend() as friend:
            time.sleep(seconds_of_quiet)
        self.quiet, self.quiet_livez = friend.predict.p99, friend.livez.p99
        assert set(friend.predict.answers) == {"200"}, friend.predict.answers

    def _friend(self) -> Friend:
        return Friend(self.host, self.port, self.key, picture("red", 3))

    def close(self) -> None:
        self.attacker.close()
        self.service.close()

    def memory(self) -> int:
        """Of the service and of the processes that work for it."""
        return sum(_resident(one) for one in [self.process, *self.process.children(recursive=True)])

    def connections(self) -> int:
        return sum(one.status == psutil.CONN_ESTABLISHED for one in self.process.net_connections(kind="tcp"))

    def suffer(self, name: str, seconds: float, scale: float, bounds: Bounds) -> Report:
        self.attacker.get_ready(name, seconds, scale, self.attackers_key if ATTACKS[name].known else "")
        before = self.memory()
        with self._peak() as peak, self._friend() as friend:
            answers = self.attacker.attack(seconds)
        quiet = max(self.quiet, bounds.least_quiet)
        faults = list(self._faults(friend, answers, peak[0] - before, quiet, bounds))
        if not self._quiet_again():
            faults.append(f"{self.connections()} connections are open {SECONDS_TO_CLOSE:g} s later")
        return Report(name, friend.livez.longest, friend.predict.longest, quiet, peak[0] - before, answers, faults)

    def _faults(
        self, friend: Friend, answers: Counter[str], memory: int, quiet: float, bounds: Bounds
    ) -> Iterator[str]:
        if friend.livez.longest > max(bounds.livez, bounds.times_quiet * self.quiet_livez):
            yield f"/livez took {friend.livez.longest:.2f} s"
        if friend.predict.longest > bounds.times_quiet * quiet:
            yield f"a prediction took {friend.predict.longest:.2f} s, quiet p99 is {quiet:.3f} s"
        for asked, waited in (("/livez", friend.livez), ("/predict", friend.predict)):
            if set(waited.answers) != {"200"}:
                yield f"{asked} was answered {dict(waited.answers)}"
        if memory > bounds.memory:
            yield f"memory grew by {memory / GIGABYTE:.2f} GB"
        wrong = [one for one in answers if one not in HARMLESS and not one.startswith("4")]
        if wrong:
            yield f"the attacker was answered {wrong}"

    def _quiet_again(self) -> bool:
        deadline = time.monotonic() + SECONDS_TO_CLOSE
        while self.connections() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.connections()

    @contextmanager
    def _peak(self) -> Iterator[list[int]]:
        most, over = [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                most[0] = max(most[0], self.memory())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        yield most
        over.set()
        thread.join()


def _two_keys(home: Path) -> list[str]:
    """Of callers that may do everything, in a database that is made for them."""
    with closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as database:
        schema.upgrade(database)
        with database.write() as db:
            return [api_keys.create(db, name, ["admin"]) for name in ("friend", "attacker")]


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
