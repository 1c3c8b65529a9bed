"""Many images in parallel batches, with their predictions in order and a bounded number of images in memory."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import Literal, TypeVar

from protoquad_client.answers import Prediction
from protoquad_client.errors import BodyTooLarge, ImageProblem, InvalidImage, TooManyImages, UnexpectedAnswer
from protoquad_client.forms import EncodedImage
from protoquad_client.requests import Request

Batch = TypeVar("Batch")
Result = TypeVar("Result")
Steps = Generator[Request[list[Prediction]], list[Prediction], Result]
AHEAD = 2  # batches for each that is being answered: nobody waits while the oldest of them is late


def in_order(work: Callable[[Batch], list[Result]], batches: Iterable[Batch], parallel: int) -> Iterator[Result]:
    """What `work` makes of the batches, in threads.

    They are not those of a pool, which a program waits for when it ends: after Ctrl-C, for as long as a request lasts.
    """
    _require_some(parallel)
    todo: SimpleQueue[tuple[Future[list[Result]], Batch] | None] = SimpleQueue()
    waiting: deque[Future[list[Result]]] = deque()
    for _ in range(parallel):
        Thread(target=_work_off, args=(work, todo), name="protoquad", daemon=True).start()
    try:
        for batch in batches:
            waiting.append(Future())
            todo.put((waiting[-1], batch))
            if len(waiting) >= AHEAD * parallel:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        for _ in range(parallel):
            todo.put(None)


def _work_off(
    work: Callable[[Batch], list[Result]], todo: "SimpleQueue[tuple[Future[list[Result]], Batch] | None]"
) -> None:
    while (one := todo.get()) is not None:
        future, batch = one
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work(batch))
            except BaseException as error:  # raised again where the result is asked for
                future.set_exception(error)


async def in_order_async(
    work: Callable[[Batch], Awaitable[list[Result]]], batches: Iterable[Batch], parallel: int
) -> AsyncIterator[Result]:
    """What `work` makes of the batches, in tasks."""
    _require_some(parallel)
    turns = asyncio.Semaphore(parallel)
    waiting: deque[asyncio.Task[list[Result]]] = deque()

    async def in_turn(batch: Batch) -> list[Result]:
        async with turns:
            return await work(batch)

    try:
        for batch in batches:
            waiting.append(asyncio.create_task(in_turn(batch)))
            if len(waiting) >= AHEAD * parallel:
                for result in await waiting.popleft():
                    yield result
        while waiting:
            for result in await waiting.popleft():
                yield result
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _require_some(parallel: int) -> None:
    if parallel < 1:
        raise ValueError(f"at least 1 request is sent at a time, not {parallel}")


# What becomes of a batch


def predicting(
    placed: Sequence[tuple[int, EncodedImage]],
    ask: Callable[[list[EncodedImage]], Request[list[Prediction]]],
    refused: Literal["raise", "yield"],
) -> Steps[dict[int, Prediction | InvalidImage]]:
    """The predictions of images by their places. Yields requests, and gets their answers, or their problems.

    A batch that is too large is sent in halves. With `refused="yield"`, images that cannot be used get an error of
    their own, and the others are sent again.
    """
    try:
        answers = yield ask([image for _, image in placed])
    except (BodyTooLarge, TooManyImages):
        if len(placed) == 1:
            raise
        half = len(placed) // 2
        first = yield from predicting(placed[:half], ask, refused)
        return first | (yield from predicting(placed[half:], ask, refused))
    except InvalidImage as problem:
        bad = [replace(one, index=placed[one.index][0]) for one in problem.images if one.index < len(placed)]
        if not bad:
            raise
        if refused == "raise":
            raise InvalidImage(replace(problem.facts, detail=_detail(bad), images=bad)) from None
        found: dict[int, Prediction | InvalidImage] = {
            one.index: InvalidImage(replace(problem.facts, detail=one.reason, images=[one])) for one in bad
        }
        good = [(place, image) for place, image in placed if place not in found]
        return found if not good else found | (yield from predicting(good, ask, refused))
    if len(answers) != len(placed):
        raise UnexpectedAnswer(f"{len(placed)} images were sent and {len(answers)} predictions came back")
    return {place: answer for (place, _), answer in zip(placed, answers, strict=True)}


def _detail(bad: Sequence[ImageProblem]) -> str:
    """The service counts within a request; a caller counts from the first image of all."""
    named = "; ".join(f"image {one.index}: {one.reason}" for one in bad[:5])
    return f"{len(bad)} of the images cannot be used; {named}"


def in_places(results: dict[int, Result]) -> list[Result]:
    return [results[place] for place in sorted(results)]
