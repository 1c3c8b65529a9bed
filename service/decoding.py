"""Work on pictures off the event loop, in as many threads as there are cores for it.

Each uploaded picture is checked by itself; one that is bad is named, and then nothing is done with the others.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import Tensor

from core.cores import usable_cores
from core.errors import ImageError
from service.errors import ImageProblem, unusable_images
from service.uploads import Upload

Thing = TypeVar("Thing")
Result = TypeVar("Result")

CORES = usable_cores()
_threads = ThreadPoolExecutor(CORES, "decoding")  # more than cores would only get in each other's way


async def each(work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
    """`work` done on every one, side by side, in order.

    Of one request no more wait for a thread than there are threads: the single picture of another comes between them.
    """
    loop = asyncio.get_running_loop()
    if len(things) == 1:  # as most requests have it
        return [await loop.run_in_executor(_threads, work, things[0])]
    results: dict[int, Result] = {}
    places = iter(range(len(things)))

    async def some() -> None:
        for place in places:
            results[place] = await loop.run_in_executor(_threads, work, things[place])

    await asyncio.gather(*(some() for _ in range(min(CORES, len(things)))))
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
