"""Items computed in threads, a few ahead of the consumer."""

from collections.abc import Iterator

import pytest

from engine.cores import usable_cores
from engine.map_ahead import map_ahead


def test_results_come_in_the_order_of_the_items() -> None:
    """However many threads compute them."""
    assert list(map_ahead(lambda number: number * number, range(50))) == [number * number for number in range(50)]


def test_an_error_reaches_the_consumer() -> None:
    """At the item that caused it, after the results before it."""

    def fail_at_three(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    results = map_ahead(fail_at_three, range(10))

    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_only_a_few_items_are_computed_ahead() -> None:
    """No more results wait than the caller asked for, beside those that are computed."""
    begun: list[int] = []

    def sources() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            yield number

    results = map_ahead(lambda number: 10 * number, sources(), ahead=5)

    assert next(results) == 0
    assert begun == list(range(usable_cores() + 5))
    assert list(results) == [10 * number for number in range(1, 100)]


def test_an_error_drops_the_rest() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        list(map_ahead(work, range(1000), ahead=5))
    assert len(begun) < 20
