"""One load for all who ask for the same thing, a bound on how much loads, and nobody who can spoil it for others."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import pytest

from engine.single_flight import Busy, SingleFlight, already

SECONDS = 30


@dataclass
class Slow:
    """Work that takes until it is let go, and counts itself."""

    go_on: threading.Event = field(default_factory=threading.Event)
    started: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, name: str = "it") -> str:
        with self.lock:
            self.started.append(name)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        assert self.go_on.wait(SECONDS)
        with self.lock:
            self.running -= 1
        return f"loaded {name}"


@pytest.fixture
def slow() -> Iterator[Slow]:
    work = Slow()
    yield work
    work.go_on.set()


def test_fifty_callers_of_one_thing_share_one_load(slow: Slow) -> None:
    """All get what the first one's load made."""
    flight: SingleFlight[str, str] = SingleFlight("things", at_once=4, most=1)
    with ThreadPoolExecutor(50) as pool:
        futures = list(pool.map(lambda _: flight.start("a", slow), range(50)))
        slow.go_on.set()

    assert {future.result(SECONDS) for future in futures} == {"loaded it"}
    assert len(slow.started) == 1


def test_only_so_many_load_at_once_and_the_others_follow_in_order(slow: Slow) -> None:
    flight: SingleFlight[str, str] = SingleFlight("things", at_once=2)
    futures = [flight.start(name, lambda name=name: slow(name)) for name in "abcdefgh"]
    slow.go_on.set()

    assert [future.result(SECONDS) for future in futures] == [f"loaded {name}" for name in "abcdefgh"]
    assert slow.most_running <= 2


def test_beyond_the_bound_callers_are_told_to_come_back(slow: Slow) -> None:
    """But not those who ask for what is loading already."""
    flight: SingleFlight[str, str] = SingleFlight("things", at_once=1, most=2)
    first, second = flight.start("a", slow), flight.start("b", slow)

    with pytest.raises(Busy, match="2 things are being loaded"):
        flight.start("c", slow)
    assert flight.start("a", slow) is first
    slow.go_on.set()
    wait([first, second], SECONDS)
    assert flight.start("c", slow).result(SECONDS) == "loaded it"


def test_a_failure_reaches_all_who_wait_and_is_forgotten(slow: Slow) -> None:
    """The next caller tries again."""
    flight: SingleFlight[str, str] = SingleFlight("things", at_once=1)

    def fail() -> str:
        slow()
        raise OSError("the disk is on fire")

    futures = [flight.start("a", fail) for _ in range(3)]
    slow.go_on.set()

    for future in futures:
        with pytest.raises(OSError, match="on fire"):
            future.result(SECONDS)
    assert flight.start("a", slow).result(SECONDS) == "loaded it"


def test_a_caller_that_leaves_cancels_it_for_nobody(slow: Slow) -> None:
    """A cancelled task on an event loop stops waiting at once; the load goes on for the other."""
    flight: SingleFlight[str, str] = SingleFlight("things", at_once=1)
    other = flight.start("a", slow)

    async def leave() -> None:
        waiting = asyncio.ensure_future(asyncio.wrap_future(flight.start("a", slow)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(leave())
    slow.go_on.set()

    assert other.result(SECONDS) == "loaded it"


def test_threads_end_when_there_is_nothing_to_load(slow: Slow) -> None:
    flight: SingleFlight[str, str] = SingleFlight("things of this test", at_once=3)
    slow.go_on.set()
    wait([flight.start(str(number), slow) for number in range(9)], SECONDS)

    for thread in threading.enumerate():
        if thread.name == "loading things of this test":
            thread.join(SECONDS)
    assert flight._threads == 0
    assert already("here").result() == "here"
