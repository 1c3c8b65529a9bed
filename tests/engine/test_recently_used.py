"""A cache that many threads use at once: bounded, and what was used last stays."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

from engine.recently_used import RecentlyUsed


class Thing:
    """Something that can be watched until it is freed."""


def test_what_was_used_last_stays() -> None:
    cache: RecentlyUsed[str, int] = RecentlyUsed(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    cache.put("c", 3)

    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_of_two_that_loaded_the_same_the_first_is_kept() -> None:
    """Both go on with the same one, so that it is in memory once."""
    cache: RecentlyUsed[str, Thing] = RecentlyUsed(2)
    first = cache.put("a", Thing())

    assert cache.put("a", Thing()) is first


def test_what_is_dropped_lives_for_whoever_has_it() -> None:
    """And no longer."""
    cache: RecentlyUsed[str, Thing] = RecentlyUsed(2)
    mine, watched = cache.put("a", Thing()), weakref.ref(cache.put("b", Thing()))

    assert [cache.drop_oldest() for _ in range(3)] == [True, True, False]
    gc.collect()
    assert isinstance(mine, Thing)
    assert watched() is None


def test_some_can_be_dropped_by_their_keys() -> None:
    cache: RecentlyUsed[int, str] = RecentlyUsed(9)
    for number in range(6):
        cache.put(number, "it")
    cache.drop(lambda number: number % 2 == 0)

    assert [number for number in range(6) if cache.get(number)] == [1, 3, 5]


def test_many_threads_find_it_whole() -> None:
    """Fifty threads over twelve keys, four of which are kept: no error, and never more than four."""
    cache: RecentlyUsed[int, int] = RecentlyUsed(4)

    def use(seed: int) -> int:
        for step in range(2_000):
            key = (seed * 7 + step * 5) % 12
            assert (cache.get(key) or cache.put(key, key + 1)) == key + 1
            cache.drop(lambda other: other == (seed + step) % 12)  # noqa: B023  # called at once
        return len(cache)

    with ThreadPoolExecutor(50) as pool:
        assert max(pool.map(use, range(50))) <= 4
