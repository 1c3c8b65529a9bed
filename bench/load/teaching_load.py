"""Many classes taught through several clients while others predict: what it costs them, and whether any is lost."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.load import servers
from bench.load.driving import Measured
from bench.load.sample_images import shot
from bench.load.servers import Server
from bench.load.stage import Tell, driven

KNOWN = 10  # classes that are there before, and that callers ask about
SECONDS_ALONE = 15.0  # for which callers are measured with nobody teaching
SECONDS_TO_LEARN = 1800.0  # what is waited for sessions after the last class
SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Size:
    classes: int = 500
    shots: int = 5
    teachers: int = 3
    callers: int = 20


@dataclass
class Taught:
    """What the teachers saw, and what was found afterwards."""

    alone: Measured
    beside: Measured
    seconds: float
    milliseconds: list[float]  # of each POST /classes
    refused: dict[int, int]  # answers other than 202, by status
    lost: list[str]  # acknowledged and not listed with all its shots
    sessions: dict[str, int] = field(default_factory=dict)  # by outcome

    @property
    def ratio(self) -> float:
        """p99 of a prediction beside teaching, as a multiple of p99 without."""
        return self.beside.p99 / self.alone.p99


def run_teaching(backbone: str, size: Size, folder: Path, tell: Tell) -> Taught:
    with servers.protoquad(folder / "home", backbone, folder / "protoquad.log", worker=True) as server:
        client = httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=120)
        with client:
            for number in range(KNOWN):
                _teach(client, number, size.shots).raise_for_status()
            _wait_for_sessions(client, tell)
            asked = [shot(number, size.shots) for number in range(KNOWN)]
            alone = driven(server, asked, 0, {"callers": size.callers, "warm": 2.0, "seconds": SECONDS_ALONE})
            tell(f"{size.callers} callers alone: {alone.rate:.1f} answers/s, p99 {alone.p99:.0f} ms")
            return _beside(client, server, asked, alone, size, folder / "stop", tell)


def _beside(
    client: httpx.Client, server: Server, asked: list[bytes], alone: Measured, size: Size, stop: Path, tell: Tell
) -> Taught:
    load = {"callers": size.callers, "warm": 2.0, "seconds": 36_000.0, "until": str(stop)}
    with ThreadPoolExecutor(1 + size.teachers) as pool:
        callers = pool.submit(driven, server, asked, 0, load)
        began = time.monotonic()
        try:
            answers = _taught_by_many(client, size, pool, tell)
        finally:
            seconds = time.monotonic() - began
            stop.touch()
        beside = callers.result()
    tell(f"{size.callers} callers beside: {beside.rate:.1f} answers/s, p99 {beside.p99:.0f} ms")
    _wait_for_sessions(client, tell)
    acknowledged = [number for number, answer in answers.items() if answer.status_code == httpx.codes.ACCEPTED]
    refused = [answer.status_code for answer in answers.values() if answer.status_code != httpx.codes.ACCEPTED]
    listed = {one["name"]: one["shots"] for one in _everything(client, "/classes")}
    outcomes = [one["verdict"] or one["status"] for one in _everything(client, "/sessions")]
    return Taught(
        alone,
        beside,
        round(seconds, 1),
        [round(1000 * answer.elapsed.total_seconds(), 1) for answer in answers.values()],
        {status: refused.count(status) for status in set(refused)},
        [_name(number) for number in acknowledged if listed.get(_name(number)) != size.shots],
        {outcome: outcomes.count(outcome) for outcome in set(outcomes)},
    )


def _taught_by_many(
    client: httpx.Client, size: Size, pool: ThreadPoolExecutor, tell: Tell
) -> dict[int, httpx.Response]:
    """Each teacher takes the next class as soon as the last is acknowledged."""
    numbers = iter(range(KNOWN, KNOWN + size.classes))
    answers: dict[int, httpx.Response] = {}
    lock = threading.Lock()

    def teacher() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            answers[number] = _teach(client, number, size.shots)

    teachers = [pool.submit(teacher) for _ in range(size.teachers)]
    while not all(one.done() for one in teachers):
        time.sleep(SECONDS_BETWEEN_LINES if not answers else min(SECONDS_BETWEEN_LINES, 1 + size.classes / 50))
        tell(f"{len(answers)} of {size.classes} classes taught")
    for one in teachers:
        one.result()
    return answers


def _teach(client: httpx.Client, number: int, shots: int) -> httpx.Response:
    files = [("shots", (f"{place}.jpg", shot(number, place), "image/jpeg")) for place in range(shots)]
    return client.post("/classes", data={"name": _name(number)}, files=files)


def _name(number: int) -> str:
    return f"class {number}"


def _wait_for_sessions(client: httpx.Client, tell: Tell) -> None:
    deadline = time.monotonic() + SECONDS_TO_LEARN
    next_line = time.monotonic() + SECONDS_BETWEEN_LINES
    while any(one["status"] in {"queued", "running"} for one in client.get("/sessions").json()["items"]):
        if time.monotonic() > deadline:
            raise RuntimeError(f"sessions still run after {SECONDS_TO_LEARN:.0f} seconds; GET /sessions shows them")
        if time.monotonic() > next_line:
            tell("waiting for the last session")
            next_line += SECONDS_BETWEEN_LINES
        time.sleep(0.5)


def _everything(client: httpx.Client, path: str) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        page = client.get(path, params={"limit": 500, **({"cursor": cursor} if cursor else {})}).json()
        yield from page["items"]
        cursor = page["next"]
        if cursor is None:
            return
