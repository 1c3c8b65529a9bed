"""Work on pictures off the event loop, in as many threads as there are cores for it.

Each uploaded picture is checked by itself; one that is bad is named, and then nothing is done with the others.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync
from torch import Tensor

from core.cores import usable_cores
from core.errors import ImageError
from service.errors import ImageProblem, unusable_images
from service.uploads import Upload

Thing = TypeVar("Thing")
Result = TypeVar("Result")

_threads: RunVar[anyio.CapacityLimiter] = RunVar("threads")


def limiter() -> anyio.CapacityLimiter:
    """Shared by all requests: more threads than cores only get in each other's way."""
    try:
        return _threads.get()
    except LookupError:
        _threads.set(anyio.CapacityLimiter(usable_cores()))
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


async def looked_at(uploads: Sequence[Upload], look: Callable[[bytes], Tensor]) -> list[Tensor]:
    """What `look` makes of every picture."""

    def one(upload: Upload) -> Tensor | ImageProblem:
        try:
            return look(upload.data)
        except ImageError as error:
            return ImageProblem(index=upload.index, filename=upload.filename, reason=str(error))

    looks = await each(one, uploads)
    bad = [found for found in looks if isinstance(found, ImageProblem)]
    if bad:
        raise unusable_images(bad, len(uploads))
    return [found for found in looks if isinstance(found, Tensor)]
