"""Drives a server and tells how it did; run as a process of its own: `python -m bench.load.driving` reads a JSON plan.

Closed loop: so many callers, each asking again as soon as it is answered. Fixed rate: callers come when they come,
whether or not the server keeps up, as they do in life; their waiting counts from when they came.
"""

import asyncio
import base64
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.load.client import (
    Connection,
    Question,
    Read,
    WrongAnswer,
    prediction_of_a_peer,
    prediction_of_ours,
    question,
)

SECONDS_KEPT = 2.0  # for which an idle connection may be used again; servers close theirs after five
MOST_WAITING = 1000  # callers of a fixed rate that are not answered yet; beyond it the server has lost


@dataclass(frozen=True)
class Measured:
    """One load on one server."""

    answers: int
    wrong: int
    seconds: float
    latencies: tuple[float, ...]  # in milliseconds: p50, p90, p99 and the longest
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


class _Tally:
    def __init__(self) -> None:
        self.took: list[float] = []
        self.wrong = 0
        self.first_error: str | None = None

    def went_wrong(self, error: BaseException) -> None:
        self.wrong += 1
        self.first_error = self.first_error or f"{type(error).__name__}: {error}"

    def measured(self, seconds: float) -> Measured:
        ordered = sorted(self.took) or [float("nan")]
        picks = (0.5, 0.9, 0.99, 1.0)
        latencies = tuple(round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) for share in picks)
        return Measured(len(self.took), self.wrong, round(seconds, 3), latencies, self.first_error)


async def closed_loop(
    port: int,
    questions: Sequence[Question],
    read: Read,
    callers: int,
    *,
    warm: float,
    seconds: float,
    until: Path | None = None,
) -> Measured:
    """`until`: ends earlier, as soon as this file is there."""
    tally = _Tally()
    begin = time.perf_counter() + warm
    end = begin + seconds

    def over(moment: float) -> bool:
        return moment >= end or (until is not None and until.exists())

    async def caller(number: int) -> None:
        connection = await Connection.to(port)
        turn = number
        while not over(asked := time.perf_counter()):
            try:
                await connection.ask(questions[turn % len(questions)], read)
            except (WrongAnswer, OSError, asyncio.IncompleteReadError) as error:
                tally.went_wrong(error)
                await connection.close()
                connection = await Connection.to(port)
            else:
                answered = time.perf_counter()
                if begin <= answered <= end:
                    tally.took.append(answered - asked)
            turn += callers
        await connection.close()

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return tally.measured(min(seconds, time.perf_counter() - begin))


async def fixed_rate(
    port: int, questions: Sequence[Question], read: Read, rate: float, *, warm: float, seconds: float, seed: int
) -> Measured:
    """Poisson arrivals: the gaps between callers are as irregular as in life."""
    tally, chance = _Tally(), random.Random(seed)
    idle: list[tuple[Connection, float]] = []  # and since when
    waiting: set[asyncio.Task[None]] = set()

    async def kept() -> Connection | None:
        """One that was used a moment ago; the server may be closing those that were not."""
        while idle:
            connection, since = idle.pop()
            if time.perf_counter() - since < SECONDS_KEPT:
                return connection
            await connection.close()
        return None

    async def caller(number: int, came: float, counts: bool) -> None:
        try:
            connection = await kept() or await Connection.to(port)
        except OSError as error:
            tally.went_wrong(error)
            return
        try:
            await connection.ask(questions[number % len(questions)], read)
        except (WrongAnswer, OSError, asyncio.IncompleteReadError) as error:
            tally.went_wrong(error)
            await connection.close()
            return
        idle.append((connection, time.perf_counter()))
        if counts:
            tally.took.append(time.perf_counter() - came)

    start = came = time.perf_counter()
    number = 0
    while came < start + warm + seconds and len(waiting) < MOST_WAITING:
        await asyncio.sleep(max(0.0, came - time.perf_counter()))
        task = asyncio.create_task(caller(number, came, came >= start + warm))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        number += 1
        came += chance.expovariate(rate)
    await asyncio.gather(*waiting)
    for connection, _ in idle:
        await connection.close()
    return tally.measured(time.perf_counter() - start - warm)


def plan(
    *,
    port: int,
    ours: bool,
    path: str,
    field: str,
    pictures: Sequence[bytes],
    expected: Sequence[int],
    load: dict[str, Any],
) -> bytes:
    """What the process is given; `load` holds warm, seconds and either callers (and until) or rate."""
    content = {
        "port": port,
        "ours": ours,
        "path": path,
        "field": field,
        "pictures": [base64.b64encode(picture).decode() for picture in pictures],
        "expected": list(expected),
        "load": load,
    }
    return json.dumps(content).encode()


def _drive(given: dict[str, Any]) -> Measured:
    pictures = [base64.b64decode(picture) for picture in given["pictures"]]
    questions = [
        question(given["path"], given["field"], picture, expected)
        for picture, expected in zip(pictures, given["expected"], strict=True)
    ]
    read = prediction_of_ours if given["ours"] else prediction_of_a_peer
    load, port = given["load"], given["port"]
    times = {"warm": load["warm"], "seconds": load["seconds"]}
    if "rate" in load:
        return uvloop.run(fixed_rate(port, questions, read, load["rate"], seed=0, **times))
    until = Path(load["until"]) if "until" in load else None
    return uvloop.run(closed_loop(port, questions, read, int(load["callers"]), until=until, **times))


if __name__ == "__main__":
    print(json.dumps(asdict(_drive(json.load(sys.stdin)))))
