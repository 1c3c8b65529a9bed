"""`map` in threads, a few items ahead of the consumer: images are decoded while the network computes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from engine.cores import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(work: Callable[[Item], Result], items: Iterable[Item], ahead: int = 1) -> Iterator[Result]:
    """Results in the order of the items: while each core works on one, at most `ahead` wait to be taken.

    The views of all images together would be gigabytes.
    """
    cores = usable_cores()
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(cores, "decoding ahead") as threads:
        try:
            for item in items:
                waiting.append(threads.submit(work, item))
                if len(waiting) >= cores + ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
