"""Items computed in threads, a few ahead of the consumer."""

import threading

import pytest

from engine.map_ahead import map_ahead


def test_results_come_in_the_order_of_the_items() -> None:
    """However many threads compute them."""
    assert list(map_ahead(lambda number: number * number, range(50))) == [number * number for number in range(50)]


def test_only_a_few_items_are_computed_ahead() -> None:
    """A consumer that stops after the first result has not caused a thousand computations."""
    started = []
    lock = threading.Lock()

    def note(number: int) -> int:
        with lock:
            started.append(number)
        return number

    results = map_ahead(note, range(1000))
    first = next(results)
    results.close()  # type: ignore[attr-defined]

    assert first == 0
    assert len(started) < 100


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
