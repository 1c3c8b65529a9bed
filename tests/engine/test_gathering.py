"""When features are searched: at once where gathering is worth nothing, together where it is, and always in the end."""

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from engine.batching import Batcher, for_cores
from engine.gathering import Gathering, Lot, Search
from engine.network import Network
from tests.fake_networks import SECONDS, Numbers, images, network, numbers
from tests.waiting import until

PATIENCE = 3


@pytest.fixture
def gathering() -> Gathering[str]:
    return Gathering(PATIENCE)


def add(gathering: Gathering[str], search: Search, *names: str) -> None:
    for name in names:
        gathering.add(search, name, torch.zeros(1))


def names(lot: Lot[str] | None) -> list[str]:
    return [] if lot is None else [name for name, _ in lot.features]


def test_features_not_worth_gathering_are_due_at_once(gathering: Gathering[str]) -> None:
    add(gathering, numbers(), "a")

    assert names(gathering.take(idle=False)) == ["a"]


@pytest.mark.parametrize(("count", "due"), [(3, False), (4, True), (9, True)])
def test_a_lot_is_due_when_it_is_full(gathering: Gathering[str], count: int, due: bool) -> None:
    search = numbers(preferred_batch=4)
    add(gathering, search, *"abcdefghi"[:count])

    lot = gathering.take(idle=False)

    assert (lot is not None) == due
    if lot is not None:
        assert lot.search == search
        assert names(lot) == list("abcdefghi"[:count])


def test_an_idle_service_waits_for_no_more_features(gathering: Gathering[str]) -> None:
    add(gathering, numbers(100), "a")

    assert gathering.take(idle=False) is None
    assert names(gathering.take(idle=True)) == ["a"]


def test_other_work_does_not_delay_a_lot_for_ever(gathering: Gathering[str]) -> None:
    add(gathering, numbers(100), "a")
    for _ in range(PATIENCE):
        assert gathering.take(idle=False) is None
        gathering.count_batch()

    assert names(gathering.take(idle=False)) == ["a"]


def test_one_lot_of_a_search_is_out_at_a_time(gathering: Gathering[str]) -> None:
    search, other = numbers(), numbers()
    add(gathering, search, "a")
    gathering.take(idle=False)
    add(gathering, search, "b", "c")

    assert gathering.take(idle=True) is None
    add(gathering, other, "d")
    assert names(gathering.take(idle=False)) == ["d"], "another search does not wait"
    gathering.finish(search)
    assert names(gathering.take(idle=False)) == ["b", "c"]


def test_a_search_that_is_over_is_forgotten(gathering: Gathering[str]) -> None:
    """It holds a version, with all its classes."""
    search = numbers()
    add(gathering, search, "a")
    gathering.take(idle=False)
    gathering.finish(search)

    assert gathering.take(idle=True) is None
    assert not gathering._waiting


# Gathering in the engine


class Slow:
    """A trunk that holds images of number 0 until `go_on` is set."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()

    def __call__(self, batch: Tensor) -> Tensor:
        if (batch[:, 0, 0, 0] == 0).any():
            self.entered.set()
            assert self.go_on.wait(SECONDS)
        return batch.float()


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def batcher(slow: Slow) -> Iterator[Batcher]:
    made = Batcher(1000, for_cores(2))
    yield made
    slow.go_on.set()
    made.close()


@pytest.fixture
def own(slow: Slow) -> Network:
    return network(slow)


def gathered(batcher: Batcher, search: Search) -> int:
    """Features of a search that wait in the engine."""
    waiting = batcher._gathering._waiting.get(search)
    return 0 if waiting is None else len(waiting.features)


def test_an_idle_engine_waits_for_no_second_image(batcher: Batcher, own: Network) -> None:
    classifier = Numbers(preferred_batch=16)
    for number in range(1, 5):
        assert batcher.submit(own, images(number), Search(classifier, 1)).result(SECONDS) == [float(number)]

    assert classifier.sizes == [1] * 4


def test_features_are_gathered_while_others_are_computed(batcher: Batcher, slow: Slow, own: Network) -> None:
    classifier = Numbers(preferred_batch=4)
    search = Search(classifier, 1)
    held = batcher.submit(own, images(0), search)
    assert slow.entered.wait(SECONDS)
    waiting = []
    for number in range(1, 4):
        waiting.append(batcher.submit(own, images(number), search))
        until(lambda number=number: gathered(batcher, search) == number, "its features wait")  # type: ignore[misc]
    waiting.append(batcher.submit(own, images(4), search))

    assert [one.result(SECONDS) for one in waiting] == [[1.0], [2.0], [3.0], [4.0]]
    assert classifier.sizes == [4]
    slow.go_on.set()
    assert held.result(SECONDS) == [0.0]
    assert classifier.sizes == [4, 1]


def test_the_last_batch_is_followed_by_a_search_of_what_was_gathered(
    batcher: Batcher, slow: Slow, own: Network
) -> None:
    search = numbers(preferred_batch=100)
    held = batcher.submit(own, images(0), numbers())
    assert slow.entered.wait(SECONDS)
    waiting = batcher.submit(own, images(1, 2), search)
    until(lambda: gathered(batcher, search) == 2, "its features wait")
    assert not waiting.done()
    slow.go_on.set()

    assert [one.result(SECONDS) for one in (held, waiting)] == [[0.0], [1.0, 2.0]]


def test_what_was_gathered_is_searched_though_the_network_fails_for_others(batcher: Batcher, own: Network) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def broken(_: Tensor) -> Tensor:
        entered.set()
        assert go_on.wait(SECONDS)
        raise RuntimeError("the network is broken")

    search = numbers(preferred_batch=100)
    bad = batcher.submit(network(broken), images(7), numbers())
    assert entered.wait(SECONDS)
    waiting = batcher.submit(own, images(1), search)
    until(lambda: gathered(batcher, search) == 1, "its features wait")
    go_on.set()

    assert waiting.result(SECONDS) == [1.0]
    with pytest.raises(RuntimeError, match="broken"):
        bad.result(SECONDS)


def test_what_was_gathered_does_not_wait_for_images_that_were_cancelled(slow: Slow, own: Network) -> None:
    """One thread computes the first image; the second is queued, and its caller leaves."""
    batcher = Batcher(1000)
    search = numbers(preferred_batch=100)
    waiting = batcher.submit(own, images(0), search)
    assert slow.entered.wait(SECONDS)
    later = batcher.submit(own, images(1), search)
    assert later.cancel()
    slow.go_on.set()

    assert waiting.result(SECONDS) == [0.0]
    batcher.close()


def test_thousands_of_requests_are_all_answered(batcher: Batcher, own: Network) -> None:
    search = numbers(preferred_batch=16)
    right = []
    for lap in range(40):
        shown = [(lap * 25 + n) % 200 + 1 for n in range(50)]
        waiting = [batcher.submit(own, images(n), search) for n in shown]
        for one in waiting[::7]:
            one.cancel()
        right += [
            one.result(SECONDS) == [float(n)] for one, n in zip(waiting, shown, strict=True) if not one.cancelled()
        ]

    assert all(right)
    assert batcher.queued == 0
