"""Many classes taught by several clients while others predict: the effect on latency, and whether a class is lost."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.load import servers
from bench.load.bench_home import client_of, teach
from bench.load.measurement import Load, LoadResult, Report, measure
from bench.load.sample_images import shot

KNOWN = 10  # classes taught before, whose images are predicted
SECONDS_ALONE = 15.0  # of load without teaching
SECONDS_TO_REFINE = 1800.0  # limit for the sessions after the last class
SECONDS_BETWEEN_REPORTS = 10.0


@dataclass(frozen=True)
class Size:
    classes: int = 500
    shots: int = 5
    teachers: int = 3
    callers: int = 20


@dataclass
class TeachingResults:
    alone: LoadResult  # predictions without teaching
    beside: LoadResult  # predictions during teaching
    seconds: float
    milliseconds: list[float]  # of each POST /classes
    refused: dict[int, int]  # status → number of answers other than 202
    lost: list[str]  # acknowledged classes that are not listed with all their shots
    sessions: dict[str, int] = field(default_factory=dict)  # outcome → number

    @property
    def ratio(self) -> float:
        """p99 of a prediction during teaching, divided by p99 without."""
        return self.beside.p99 / self.alone.p99


def measure_teaching(backbone: str, size: Size, folder: Path, report: Report) -> TeachingResults:
    with servers.protoquad(folder / "home", backbone, worker=True) as server, client_of(server) as client:
        for number in range(KNOWN):
            _teach(client, number, size.shots).raise_for_status()
        _wait_for_sessions(client, report)
        images = [shot(number, size.shots) for number in range(KNOWN)]
        alone = measure(server, images, Load(SECONDS_ALONE, warm=2.0, callers=size.callers))
        report(f"{size.callers} callers alone: {alone}")
        stop = folder / "stop"
        with ThreadPoolExecutor(1) as pool:
            load = Load(36_000.0, warm=2.0, callers=size.callers, until=str(stop))
            predictions = pool.submit(measure, server, images, load)
            began = time.monotonic()
            try:
                answers = _teach_all(client, size, report)
            finally:
                seconds = round(time.monotonic() - began, 1)
                stop.touch()
            beside = predictions.result()
        report(f"{size.callers} callers during teaching: {beside}")
        _wait_for_sessions(client, report)
        listed = {one["name"]: one["shots"] for one in _all_items(client, "/classes")}
        outcomes = Counter(one["verdict"] or one["status"] for one in _all_items(client, "/sessions"))
    statuses = Counter(answer.status_code for answer in answers.values())
    accepted = [name for name, answer in answers.items() if answer.status_code == httpx.codes.ACCEPTED]
    return TeachingResults(
        alone,
        beside,
        seconds,
        [round(1000 * answer.elapsed.total_seconds(), 1) for answer in answers.values()],
        {status: count for status, count in statuses.items() if status != httpx.codes.ACCEPTED},
        [name for name in accepted if listed.get(name) != size.shots],
        dict(outcomes),
    )


def _teach_all(client: httpx.Client, size: Size, report: Report) -> dict[str, httpx.Response]:
    """The answers by name. Each teacher takes the next class as soon as its last one is acknowledged."""
    with ThreadPoolExecutor(size.teachers) as pool:
        numbers = range(KNOWN, KNOWN + size.classes)
        jobs = {_name(number): pool.submit(_teach, client, number, size.shots) for number in numbers}
        done = 0
        while done < size.classes:
            time.sleep(min(SECONDS_BETWEEN_REPORTS, 1 + size.classes / 50))
            done = sum(job.done() for job in jobs.values())
            report(f"{done} of {size.classes} classes taught")
        return {name: job.result() for name, job in jobs.items()}


def _teach(client: httpx.Client, number: int, shots: int) -> httpx.Response:
    return teach(client, _name(number), [shot(number, place) for place in range(shots)])


def _name(number: int) -> str:
    return f"class {number}"


def _wait_for_sessions(client: httpx.Client, report: Report) -> None:
    deadline = time.monotonic() + SECONDS_TO_REFINE
    next_report = time.monotonic() + SECONDS_BETWEEN_REPORTS
    while any(one["status"] in {"queued", "running"} for one in client.get("/sessions").json()["items"]):
        if time.monotonic() > deadline:
            raise RuntimeError(f"sessions still run after {SECONDS_TO_REFINE:.0f} seconds; GET /sessions shows them")
        if time.monotonic() > next_report:
            report("waiting for the last session")
            next_report += SECONDS_BETWEEN_REPORTS
        time.sleep(0.5)


def _all_items(client: httpx.Client, path: str) -> Iterator[dict[str, Any]]:
    params: dict[str, Any] = {"limit": 500}
    while True:
        page = client.get(path, params=params).json()
        yield from page["items"]
        if page["next"] is None:
            return
        params["cursor"] = page["next"]
