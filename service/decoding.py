"""Work on pictures off the event loop, in as many threads as there are cores for it.

Each uploaded picture is checked by itself; one that is bad is named, and then nothing is done with the others.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from torch import Tensor

from core.cores import usable_cores
from core.errors import ImageError
from service.errors import ImageProblem, unusable_images
from service.uploads import Upload

Thing = TypeVar("Thing")
Result = TypeVar("Result")
Look = Callable[[bytes], Tensor]  # at a picture as it was sent

CORES = usable_cores()
_threads = ThreadPoolExecutor(CORES, "decoding")  # more than cores would only get in each other's way


async def each(work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
    """`work` done on every one, side by side, in order."""
    if not things:
        return []
    answer: Future[list[Result]] = Future()

    def tell(results: list[Result]) -> None:
        with suppress(InvalidStateError):  # nobody waits any more
            answer.set_result(results)

    _Round(work, things, tell, answer).begin()
    return await asyncio.wrap_future(answer)


async def looked_at(uploads: Sequence[Upload], look: Look) -> list[Tensor]:
    """What `look` makes of every picture."""
    return _usable(await each(_looking(look), uploads))


def hand_over(uploads: Sequence[Upload], look: Look, to: Callable[[list[Tensor]], None], answer: "Future[Any]") -> None:
    """Have `to` called with what `look` makes of every picture, in a thread: the event loop is not woken for it.

    Where that cannot be, the answer says why; when nobody waits for the answer any more, no more is done.
    """
    _Round(_looking(look), uploads, lambda looks: to(_usable(looks)), answer).begin()


@dataclass(eq=False)
class _Round(Generic[Thing, Result]):
    """The pictures of one request on their way through the threads.

    No more of them wait for a thread than there are threads: the single picture of another comes between them.
    """

    work: Callable[[Thing], Result]
    things: Sequence[Thing]
    then: Callable[[list[Result]], None]
    answer: "Future[Any]"
    results: dict[int, Result] = field(default_factory=dict)  # by place
    done: Iterator[int] = field(default_factory=lambda: count(1))

    def begin(self) -> None:
        for place in range(min(CORES, len(self.things))):
            _threads.submit(self._one, place)

    def _one(self, place: int) -> None:
        if self.answer.done():
            return
        try:
            self.results[place] = self.work(self.things[place])
            if next(self.done) == len(self.things):  # which is true in one thread alone
                self.then([self.results[at] for at in range(len(self.things))])
            elif place + CORES < len(self.things):
                _threads.submit(self._one, place + CORES)
        except Exception as error:
            with suppress(InvalidStateError):
                self.answer.set_exception(error)


def _looking(look: Look) -> "Callable[[Upload], Tensor | ImageProblem]":
    def one(upload: Upload) -> Tensor | ImageProblem:
        try:
            return look(upload.data)
        except ImageError as error:
            return ImageProblem(index=upload.index, filename=upload.filename, reason=str(error))

    return one


def _usable(looks: "Sequence[Tensor | ImageProblem]") -> list[Tensor]:
    bad = [found for found in looks if isinstance(found, ImageProblem)]
    if bad:
        raise unusable_images(bad, len(looks))
    return [found for found in looks if isinstance(found, Tensor)]
