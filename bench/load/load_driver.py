"""`python -m bench.load.load_driver`: reads a JSON plan, loads a server and prints the result as JSON.

A process of its own, so that it waits for no other work of the benchmark.
"""

import asyncio
import base64
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import count, repeat
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from bench.load.measurement import Load, LoadResult
from bench.load.predict_client import PredictClient, PredictRequest, WrongAnswer

MOST_WAITING = 1000  # requests of a fixed rate without an answer; with more, the server cannot keep up
SECONDS_AFTER_ERROR = 0.01


class _Tally:
    """Latencies and errors."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.wrong = 0
        self.first_error: str | None = None

    async def is_answered(self, client: PredictClient, request: PredictRequest) -> bool:
        """Send a request; count it as wrong unless it gets the right answer."""
        try:
            await client.predict(request)
        except (WrongAnswer, aiohttp.ClientError, OSError) as error:
            self.wrong += 1
            self.first_error = self.first_error or f"{type(error).__name__}: {error}"
            return False
        return True

    def result(self, seconds: float) -> LoadResult:
        ordered = sorted(self.seconds) or [float("nan")]
        shares = (0.5, 0.9, 0.99, 1.0)
        picked = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in shares]
        latencies = tuple(round(1000 * latency, 3) for latency in picked)
        return LoadResult(len(self.seconds), self.wrong, round(seconds, 3), latencies, self.first_error)


async def run_callers(client: PredictClient, requests: Sequence[PredictRequest], load: Load) -> LoadResult:
    """A closed loop: each caller sends its next request as soon as the last one is answered."""
    assert load.callers is not None
    tally, callers = _Tally(), load.callers
    begin = time.perf_counter() + load.warm
    end = begin + load.seconds
    stop = Path(load.until) if load.until else None

    async def run_caller(number: int) -> None:
        for turn in count(number, callers):
            sent = time.perf_counter()
            if sent >= end or (stop and stop.exists()):
                return
            if not await tally.is_answered(client, requests[turn % len(requests)]):
                await asyncio.sleep(SECONDS_AFTER_ERROR)
            elif begin <= (answered := time.perf_counter()) <= end:
                tally.seconds.append(answered - sent)

    await asyncio.gather(*(run_caller(number) for number in range(callers)))
    return tally.result(min(load.seconds, time.perf_counter() - begin))


async def run_rate(
    client: PredictClient, requests: Sequence[PredictRequest], load: Load, *, seed: int = 0
) -> LoadResult:
    """Requests start at random times (a Poisson process), whether or not the server keeps up.

    Latency counts from the planned start.
    """
    assert load.rate is not None
    tally, rng = _Tally(), random.Random(seed)
    waiting: set[asyncio.Task[None]] = set()
    start = planned = time.perf_counter()
    measured = start + load.warm

    async def send(request: PredictRequest, planned: float) -> None:
        if await tally.is_answered(client, request) and planned >= measured:
            tally.seconds.append(time.perf_counter() - planned)

    for number in count():
        if planned >= measured + load.seconds or len(waiting) >= MOST_WAITING:
            break
        await asyncio.sleep(max(0.0, planned - time.perf_counter()))
        task = asyncio.create_task(send(requests[number % len(requests)], planned))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        planned += rng.expovariate(load.rate)
    await asyncio.gather(*waiting)
    return tally.result(time.perf_counter() - measured)


async def _run(plan: dict[str, Any]) -> LoadResult:
    images = [base64.b64decode(image) for image in plan["images"]]
    classes = repeat(None) if plan["first_class"] is None else count(plan["first_class"])
    requests = [PredictRequest.make(plan["field"], image, next(classes)) for image in images]
    load = Load(**plan["load"])
    async with PredictClient.connect(plan["port"], ours=plan["ours"], path=plan["path"]) as client:
        return await (run_callers if load.rate is None else run_rate)(client, requests, load)


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(_run(json.load(sys.stdin))))))
