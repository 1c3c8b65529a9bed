"""Pictures go through the decoding threads side by side, in order, and nobody's hold up another's."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from torch import Tensor

from core.errors import NotAnImage
from service.decoding import CORES, each, hand_over
from service.errors import Problem
from service.uploads import Upload

SECONDS = 20.0
MANY = 5 * CORES + 1


def uploads(count: int) -> list[Upload]:
    return [Upload(place, f"{place}.jpg", bytes([place])) for place in range(count)]


def look(data: bytes) -> Tensor:
    return torch.tensor(list(data))


@pytest.mark.parametrize("number", [0, 1, CORES, MANY])
def test_results_come_in_the_order_of_the_things(number: int) -> None:
    assert asyncio.run(each(lambda thing: 10 * thing, range(number))) == [10 * place for place in range(number)]


@pytest.mark.parametrize("number", [1, MANY])
def test_what_is_handed_over_comes_whole_and_once(number: int) -> None:
    got: list[list[int]] = []
    answer: Future[str] = Future()

    def take(pictures: list[Tensor]) -> None:
        got.append([int(picture) for picture in pictures])
        answer.set_result("taken")

    hand_over(uploads(number), look, take, answer)

    assert answer.result(SECONDS) == "taken"
    assert got == [list(range(number))]


def test_every_bad_picture_is_named_and_nothing_handed_over() -> None:
    def refuse_odd(data: bytes) -> Tensor:
        if data[0] % 2:
            raise NotAnImage("odd")
        return look(data)

    answer: Future[Any] = Future()
    hand_over(uploads(MANY), refuse_odd, lambda _: pytest.fail("handed over"), answer)

    problem = answer.exception(SECONDS)
    assert isinstance(problem, Problem)
    assert [one.index for one in problem.images] == list(range(1, MANY, 2))


def test_a_fault_is_the_answer_and_ends_the_work() -> None:
    seen: list[int] = []

    def work(thing: int) -> int:
        seen.append(thing)
        raise ZeroDivisionError(f"at {thing}")

    with pytest.raises(ZeroDivisionError, match="at "):
        asyncio.run(each(work, range(100)))
    assert len(seen) <= CORES


def test_whoever_takes_them_may_refuse() -> None:
    answer: Future[Any] = Future()

    def refuse(_: list[Tensor]) -> None:
        raise OSError("no room")

    hand_over(uploads(2), look, refuse, answer)

    assert isinstance(answer.exception(SECONDS), OSError)


def test_nothing_is_done_for_who_has_gone_away() -> None:
    began, may_end = threading.Semaphore(0), threading.Event()
    seen: list[int] = []

    def slow(data: bytes) -> Tensor:
        seen.append(data[0])
        began.release()
        assert may_end.wait(SECONDS)
        return look(data)

    answer: Future[Any] = Future()
    hand_over(uploads(MANY), slow, lambda _: pytest.fail("handed over"), answer)
    for _ in range(CORES):
        assert began.acquire(timeout=SECONDS)
    assert answer.cancel()
    may_end.set()

    assert asyncio.run(each(lambda thing: thing, range(MANY))) == list(range(MANY)), "the threads are free again"
    assert sorted(seen) == list(range(CORES))


def test_one_picture_does_not_wait_for_sixty_four() -> None:
    """Of a large request no more wait for a thread than there are threads."""
    order: list[str] = []
    may_begin = threading.Event()

    def noted(name: str) -> str:
        assert may_begin.wait(SECONDS)
        order.append(name)
        return name

    async def both() -> None:
        large = asyncio.create_task(each(noted, ["large"] * 64))
        await asyncio.sleep(0)
        small = asyncio.create_task(each(noted, ["small"]))
        await asyncio.sleep(0)
        may_begin.set()
        await asyncio.gather(large, small)

    asyncio.run(both())

    assert order.index("small") <= 2 * CORES
