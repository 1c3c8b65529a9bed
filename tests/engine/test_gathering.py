"""When features are read: at once where a lot is worth nothing, together where it is, and never never."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from core.images import Framing
from core.space import Space
from engine.batching import Batcher, on_cores
from engine.gathering import Gathering
from engine.network import Network
from store.models import ModelId

SECONDS = 20.0
PATIENCE = 3


class Share:
    def __init__(self, pictures: int = 1) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return self.pictures


def nothing(features: Tensor) -> list[float]:
    return [0.0] * len(features)


def other(features: Tensor) -> list[float]:
    return nothing(features)


@pytest.fixture
def gathering() -> Gathering[Share]:
    return Gathering(PATIENCE)


def added(gathering: Gathering[Share], *pictures: int, full: int) -> list[Share]:
    shares = [Share(number) for number in pictures]
    gathering.add(nothing, full, {share: torch.zeros(len(share), 1) for share in shares})
    return shares


def test_what_is_worth_no_waiting_is_read_at_once(gathering: Gathering[Share]) -> None:
    share = added(gathering, 1, full=1)
    assert list(_taken(gathering)) == share


@pytest.mark.parametrize(("pictures", "due"), [([3], False), ([3, 1], True), ([4], True), ([9], True)])
def test_a_lot_is_read_when_it_is_full(gathering: Gathering[Share], pictures: list[int], due: bool) -> None:
    shares = added(gathering, *pictures, full=4)
    found = gathering.take(idle=False)
    assert (found is not None) == due
    if found is not None:
        assert found[0] is nothing
        assert list(found[1]) == shares


def test_idle_cores_read_what_there_is(gathering: Gathering[Share]) -> None:
    shares = added(gathering, 1, full=100)
    assert gathering.take(idle=False) is None
    assert list(_taken(gathering, idle=True)) == shares


def test_other_work_does_not_put_a_lot_off_for_ever(gathering: Gathering[Share]) -> None:
    shares = added(gathering, 1, full=100)
    for _ in range(PATIENCE):
        assert gathering.take(idle=False) is None
        gathering.batch_done()
    assert list(_taken(gathering)) == shares


def test_nobody_else_reads_the_same_meanwhile(gathering: Gathering[Share]) -> None:
    added(gathering, 1, full=1)
    _taken(gathering)
    more = added(gathering, 5, full=1)
    assert gathering.take(idle=True) is None
    gathering.add(other, 1, {Share(): torch.zeros(1, 1)})
    found = gathering.take(idle=False)
    assert found is not None
    assert found[0] is other, "another reading waits for nobody"
    gathering.done(nothing)
    assert list(_taken(gathering)) == more


def test_a_reading_that_is_over_is_forgotten(gathering: Gathering[Share]) -> None:
    """It holds on to a version, with all its classes."""
    added(gathering, 1, full=1)
    _taken(gathering)
    gathering.done(nothing)
    assert gathering.take(idle=True) is None
    assert not gathering._lots


def _taken(gathering: Gathering[Share], *, idle: bool = False) -> dict[Share, Tensor]:
    found = gathering.take(idle=idle)
    assert found is not None
    return found[1]


class Slow:
    """A trunk that keeps pictures of number 0 until it is told to let them go."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()

    def __call__(self, pictures: Tensor) -> Tensor:
        if (pictures[:, 0, 0, 0] == 0).any():
            self.entered.set()
            assert self.go_on.wait(SECONDS)
        return pictures.float()


class Reading:
    """What is read of a picture is its number; remembers how many were read at a time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, features: Tensor) -> list[float]:
        self.sizes.append(len(features))
        return [float(value) for value in features[:, 0]]


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def batcher(slow: Slow) -> Iterator[Batcher]:
    made = Batcher(1000, shape=on_cores(2))
    yield made
    slow.go_on.set()
    made.close()


@pytest.fixture
def own(slow: Slow) -> Network:
    def tail(activations: Tensor) -> Tensor:
        return activations[:, 0, 0, :1]

    return Network((ModelId(1), 0), slow, tail, Space("cosine"), Framing(2), 1)


def pictures(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)


def test_an_idle_service_waits_for_no_second_picture(batcher: Batcher, own: Network) -> None:
    reading = Reading()
    for number in range(1, 5):
        assert batcher.submit(own, pictures(number), reading, together=16).result(SECONDS) == [float(number)]
    assert reading.sizes == [1] * 4


def test_while_others_are_computed_a_lot_is_gathered(batcher: Batcher, slow: Slow, own: Network) -> None:
    reading = Reading()
    held = batcher.submit(own, pictures(0), reading, together=4)
    assert slow.entered.wait(SECONDS)
    waiting = []
    for number in range(1, 5):
        waiting.append(batcher.submit(own, pictures(number), reading, together=4))
        time.sleep(0.05)
    assert [one.result(SECONDS) for one in waiting] == [[1.0], [2.0], [3.0], [4.0]]
    assert reading.sizes == [4]
    slow.go_on.set()
    assert held.result(SECONDS) == [0.0]
    assert reading.sizes == [4, 1]


def test_the_last_to_be_computed_reads_what_has_been_gathered(batcher: Batcher, slow: Slow, own: Network) -> None:
    reading, plain = Reading(), Reading()
    held = batcher.submit(own, pictures(0), plain)
    assert slow.entered.wait(SECONDS)
    waiting = [batcher.submit(own, pictures(number), reading, together=100) for number in (1, 2)]
    time.sleep(0.1)
    assert not any(one.done() for one in waiting)
    slow.go_on.set()
    assert [one.result(SECONDS) for one in (held, *waiting)] == [[0.0], [1.0], [2.0]]


def test_what_is_gathered_is_read_though_the_network_fails_for_others(batcher: Batcher, own: Network) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def broken(_: Tensor) -> Tensor:
        entered.set()
        assert go_on.wait(SECONDS)
        raise RuntimeError("the network is broken")

    failing = Network(own.key, broken, own.tail, own.space, own.framing, own.dim)
    bad = batcher.submit(failing, pictures(7), Reading())
    assert entered.wait(SECONDS)
    waiting = batcher.submit(own, pictures(1), Reading(), together=100)
    time.sleep(0.05)
    go_on.set()
    assert waiting.result(SECONDS) == [1.0]
    with pytest.raises(RuntimeError, match="broken"):
        bad.result(SECONDS)


def test_what_waits_for_a_picture_is_read_when_that_one_is_taken_back(
    slow: Slow, own: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the worst moment: after the thread saw that there is more to come, and before it takes that up."""
    batcher = Batcher(1000)
    looked, gone = batcher._due, threading.Event()

    def due() -> Any:
        found = looked()
        if not gone.is_set():
            gone.set()
            assert later.cancel()
        return found

    monkeypatch.setattr(batcher, "_due", due)
    waiting = batcher.submit(own, pictures(0), Reading(), together=100)
    assert slow.entered.wait(SECONDS)
    later = batcher.submit(own, pictures(1), Reading(), together=100)
    slow.go_on.set()

    assert waiting.result(SECONDS) == [0.0]
    batcher.close()


def test_thousands_of_requests_are_all_answered(batcher: Batcher, own: Network) -> None:
    reading = Reading()
    found = []
    for lap in range(40):
        numbers = [(lap * 25 + n) % 200 + 1 for n in range(50)]
        waiting = [batcher.submit(own, pictures(n), reading, together=16) for n in numbers]
        for one in waiting[::7]:
            one.cancel()
        found += [
            one.result(SECONDS) == [float(n)] for one, n in zip(waiting, numbers, strict=True) if not one.cancelled()
        ]
    assert all(found)
    assert batcher.queued == 0
