"""Work on pictures off the event loop, in as many threads as there are cores for it."""

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

Thing = TypeVar("Thing")
Result = TypeVar("Result")

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_threads: RunVar[anyio.CapacityLimiter] = RunVar("threads")


def limiter() -> anyio.CapacityLimiter:
    """Shared by all requests: more threads than cores only get in each other's way."""
    try:
        return _threads.get()
    except LookupError:
        _threads.set(anyio.CapacityLimiter(CORES))
        return _threads.get()


async def each(work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
    """`work` done on every one, side by side, in order."""
    results: dict[int, Result] = {}

    async def one(place: int, thing: Thing) -> None:
        results[place] = await run_sync(work, thing, limiter=limiter(), abandon_on_cancel=False)

    async with anyio.create_task_group() as group:
        for place, thing in enumerate(things):
            group.start_soon(one, place, thing)
    return [results[place] for place in range(len(things))]
