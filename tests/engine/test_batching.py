"""Batches form by themselves: nobody waits for others, is forgotten, or is answered with what was another's."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest
import torch
from torch import Tensor

from core.images import Framing
from core.space import Space
from engine.batching import IN_TURN, Batcher, Overloaded, on_cores
from engine.network import Network
from store.models import ModelId

SECONDS = 20.0
MOST_IMAGES, SHARE = IN_TURN.most_images, IN_TURN.share


class Gate:
    """A trunk that lets a batch through when it is told to, and remembers the sizes of batches."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.batches: list[list[float]] = []
        self.fails = False

    def __call__(self, pictures: Tensor) -> Tensor:
        self.batches.append(pictures[:, 0, 0, 0].tolist())
        self.entered.release()
        assert self.open.wait(SECONDS)
        if self.fails:
            raise RuntimeError("the network is broken")
        return pictures.float()

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


def network(trunk: Callable[[Tensor], Tensor], factor: float = 1.0) -> Network:
    def tail(activations: Tensor) -> Tensor:
        return factor * activations[:, 0, 0, :1]

    return Network((ModelId(1), 0), trunk, tail, Space("cosine"), Framing(2), 1)


def pictures(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)


def numbers(features: Tensor) -> list[float]:
    """What is read of a picture: the number that it shows."""
    return [float(value) for value in features[:, 0]]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def batcher(gate: Gate) -> Iterator[Batcher]:
    made = Batcher(most_queued=200)
    yield made
    gate.open.set()
    made.close()


@pytest.fixture
def busy(batcher: Batcher, gate: Gate) -> Network:
    """A network that is at work: what is asked of it now waits."""
    own = network(gate)
    batcher.submit(own, pictures(99), numbers)
    assert gate.entered.acquire(timeout=SECONDS)
    return own


def answers(*futures: "Future[list[Any]]") -> list[list[Any]]:
    return [future.result(SECONDS) for future in futures]


def test_a_single_picture_waits_for_nobody(batcher: Batcher, gate: Gate) -> None:
    gate.open.set()
    own, took = network(gate), []
    for _ in range(50):
        began = time.perf_counter()
        assert answers(batcher.submit(own, pictures(7), numbers)) == [[7.0]]
        took.append(time.perf_counter() - began)

    assert sorted(took)[25] < 0.005, "an idle engine adds no delay of its own"
    assert gate.sizes == [1] * 50


def test_what_has_queued_up_is_answered_together(batcher: Batcher, gate: Gate, busy: Network) -> None:
    waiting = [batcher.submit(busy, pictures(n, n + 100), numbers) for n in range(10)]
    assert batcher.queued == 20
    gate.open.set()

    assert answers(*waiting) == [[n, n + 100.0] for n in range(10)]
    assert gate.sizes == [1, 20]
    assert batcher.queued == 0


def test_a_batch_has_a_largest_size(batcher: Batcher, gate: Gate, busy: Network) -> None:
    waiting = [batcher.submit(busy, pictures(n), numbers) for n in range(2 * MOST_IMAGES + 3)]
    gate.open.set()

    assert answers(*waiting) == [[float(n)] for n in range(2 * MOST_IMAGES + 3)]
    assert gate.sizes == [1, MOST_IMAGES, MOST_IMAGES, 3]


def test_a_large_request_alone_fills_batches(batcher: Batcher, gate: Gate, busy: Network) -> None:
    large = batcher.submit(busy, pictures(*range(64)), numbers)
    gate.open.set()

    assert answers(large) == [[float(n) for n in range(64)]]
    assert max(gate.sizes) == MOST_IMAGES


def test_one_picture_does_not_wait_for_sixty_four(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """Those who came later get into the next batch, beside a share of the large ones."""
    large = [batcher.submit(busy, pictures(*range(64)), numbers) for _ in range(2)]
    small = [batcher.submit(busy, pictures(100 + n), numbers) for n in range(4)]
    gate.open.set()

    assert answers(*small) == [[100.0 + n] for n in range(4)]
    assert answers(*large) == [[float(n) for n in range(64)]] * 2, "in order, though in several batches"
    assert {100.0 + n for n in range(4)} <= set(gate.batches[1])
    assert len(gate.batches[1]) == 2 * SHARE + 4


def test_large_requests_take_turns(batcher: Batcher, gate: Gate, busy: Network) -> None:
    first, second = (batcher.submit(busy, pictures(*[n] * 64), numbers) for n in (1, 2))
    gate.open.set()
    answers(first, second)

    assert [batch.count(1.0) for batch in gate.batches[1:4]] == [batch.count(2.0) for batch in gate.batches[1:4]]


def test_each_is_answered_by_its_own_weights_and_reading(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """Versions share a trunk and differ in the tail; equal readings are done once for all."""
    calls: list[int] = []

    def doubled(features: Tensor) -> list[float]:
        calls.append(len(features))
        return [2 * value for value in numbers(features)]

    other = network(gate, factor=-1.0)
    waiting = [
        batcher.submit(busy, pictures(1), numbers),
        batcher.submit(other, pictures(2), numbers),
        batcher.submit(busy, pictures(3), doubled),
        batcher.submit(other, pictures(4, 5), doubled),
        batcher.submit(busy, pictures(6), doubled),
    ]
    gate.open.set()

    assert answers(*waiting) == [[1.0], [-2.0], [6.0], [-8.0, -10.0], [12.0]]
    assert gate.sizes == [1, 6], "one pass of the trunk for all"
    assert calls == [4], "one reading for all"


def test_trunks_are_not_mixed(batcher: Batcher, gate: Gate, busy: Network) -> None:
    gate.open.set()
    sizes: list[int] = []

    def other_trunk(batch: Tensor) -> Tensor:
        sizes.append(len(batch))
        return batch.float() + 1

    other = network(other_trunk)
    waiting = [batcher.submit(own, pictures(n), numbers) for n, own in enumerate([busy, other] * 5)]

    assert answers(*waiting) == [[float(n + n % 2)] for n in range(10)]
    assert sum(sizes) == 5


def test_who_has_gone_away_is_dropped(batcher: Batcher, gate: Gate, busy: Network) -> None:
    gone = [batcher.submit(busy, pictures(*range(8)), numbers) for _ in range(3)]
    stays = batcher.submit(busy, pictures(5), numbers)
    assert all(future.cancel() for future in gone)
    gate.open.set()

    assert answers(stays) == [[5.0]]
    assert gate.batches[1:] == [[5.0]], "nothing was computed for those who left"
    assert batcher.queued == 0
    with pytest.raises(CancelledError):
        gone[0].result(0)


def test_a_full_queue_refuses_at_once(batcher: Batcher, gate: Gate, busy: Network) -> None:
    waiting = [batcher.submit(busy, pictures(*range(50)), numbers) for _ in range(4)]
    began = time.perf_counter()
    with pytest.raises(Overloaded, match="200 pictures wait already, of 200 that may"):
        batcher.submit(busy, pictures(1), numbers)
    assert time.perf_counter() - began < 0.1

    gate.open.set()
    answers(*waiting)
    assert answers(batcher.submit(busy, pictures(1), numbers)) == [[1.0]], "and takes more when there is room again"


def test_room_is_given_before_the_pictures_have_come(batcher: Batcher, gate: Gate) -> None:
    """So that whoever finds none hears so before a picture of theirs is decoded."""
    gate.open.set()
    own = network(gate)
    job = batcher.admit(own, 200, numbers)
    with pytest.raises(Overloaded, match="200 pictures wait already"):
        batcher.admit(own, 1, numbers)

    batcher.start(job, pictures(*range(200)))

    assert answers(job) == [[float(n) for n in range(200)]]
    assert batcher.queued == 0


def test_room_is_given_back_when_no_pictures_come(batcher: Batcher, gate: Gate) -> None:
    """Because they could not be decoded, or because the caller has gone away."""
    gate.open.set()
    own = network(gate)
    broken, gone = (batcher.admit(own, 100, numbers) for _ in range(2))
    broken.set_exception(ValueError("not a picture"))
    assert batcher.queued == 100
    assert gone.cancel()
    assert batcher.queued == 0

    batcher.start(gone, pictures(*range(100)))

    assert answers(batcher.submit(own, pictures(1), numbers)) == [[1.0]]
    assert gate.sizes == [1], "nothing was computed for those who left"


def test_pictures_that_come_after_closing_are_refused(gate: Gate) -> None:
    batcher = Batcher(most_queued=100)
    job = batcher.admit(network(gate), 1, numbers)
    batcher.close()

    with pytest.raises(Overloaded, match="stopping"):
        batcher.start(job, pictures(1))


def test_what_is_answered_is_let_go(batcher: Batcher, gate: Gate) -> None:
    """At once, not when Python next looks for cycles: pictures of all who asked since would pile up."""
    gate.open.set()
    gc.disable()
    try:
        job = batcher.submit(network(gate), pictures(1), numbers)
        answers(job)
        left = weakref.ref(job)
        del job
        answers(batcher.submit(network(gate), pictures(2), numbers))  # the thread has moved on
        assert left() is None
    finally:
        gc.enable()


def test_a_request_larger_than_the_queue_is_taken_when_nothing_waits(gate: Gate) -> None:
    small = Batcher(most_queued=4)
    gate.open.set()
    assert len(small.submit(network(gate), pictures(*range(10)), numbers).result(SECONDS)) == 10
    small.close()


def test_a_network_that_fails_fails_its_batch_alone(batcher: Batcher, gate: Gate, busy: Network) -> None:
    gate.fails = True
    waiting = batcher.submit(busy, pictures(*range(40)), numbers)
    gate.open.set()
    with pytest.raises(RuntimeError, match="broken"):
        waiting.result(SECONDS)

    gate.fails = False
    assert batcher.alive
    assert answers(batcher.submit(busy, pictures(3), numbers)) == [[3.0]]
    assert batcher.queued == 0


def test_closing_finishes_what_is_queued(gate: Gate) -> None:
    own, batcher = network(gate), Batcher(most_queued=100)
    waiting = [batcher.submit(own, pictures(n), numbers) for n in range(5)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while not batcher._closing:
        time.sleep(0.001)
    with pytest.raises(Overloaded, match="stopping"):
        batcher.submit(own, pictures(1), numbers)
    gate.open.set()

    assert answers(*waiting) == [[float(n)] for n in range(5)]
    closing.join(SECONDS)
    assert not batcher.alive


class Cores:
    """A trunk that knows whether it was given all cores or one, and how many batches were computed at a time."""

    def __init__(self) -> None:
        self.wide: list[int] = []
        self.narrow: list[int] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def __call__(self, pictures: Tensor) -> Tensor:
        self.wide.append(len(pictures))
        return pictures.float()

    def on_one_core(self, pictures: Tensor) -> Tensor:
        with self._lock:
            self.narrow.append(len(pictures))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(0.02)
        with self._lock:
            self._at_once -= 1
        return pictures.float()


def test_a_single_request_gets_all_cores() -> None:
    trunk, batcher = Cores(), Batcher(100, shape=on_cores(2))
    own = network(trunk)
    for number in range(5):
        assert answers(batcher.submit(own, pictures(number), numbers)) == [[float(number)]]
    batcher.close()

    assert (trunk.wide, trunk.narrow) == ([1] * 5, [])


def test_many_requests_get_a_core_each_side_by_side() -> None:
    trunk, batcher = Cores(), Batcher(1000, shape=on_cores(3))
    own = network(trunk)
    waiting = [batcher.submit(own, pictures(n % 200, 7), numbers) for n in range(60)]

    assert answers(*waiting) == [[float(n % 200), 7.0] for n in range(60)]
    batcher.close()
    assert trunk.most_at_once == on_cores(3).threads
    assert sum(trunk.narrow) + sum(trunk.wide) == 120
    assert max(trunk.narrow) <= on_cores(3).most_images
    assert not batcher.alive


def test_what_comes_while_one_reads_is_read_at_once_after_it() -> None:
    trunk, batcher = Cores(), Batcher(1000, shape=on_cores(3))
    own, reading, go_on = network(trunk), threading.Event(), threading.Event()
    sizes: list[int] = []

    def slowly(features: Tensor) -> list[float]:
        sizes.append(len(features))
        reading.set()
        assert go_on.wait(10)
        return numbers(features)

    waiting = [batcher.submit(own, pictures(1), slowly)]
    assert reading.wait(10)
    waiting += [batcher.submit(own, pictures(n), slowly) for n in range(2, 12)]
    other = batcher.submit(own, pictures(12), numbers)
    assert answers(other) == [[12.0]], "another reading waits for nobody"
    deadline = time.monotonic() + 10
    while sum(trunk.wide) + sum(trunk.narrow) < 12 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)  # the last of the features are on their way
    go_on.set()

    assert answers(*waiting) == [[float(n)] for n in range(1, 12)]
    assert sizes == [1, 10]
    batcher.close()
    assert not batcher.alive


def test_a_failed_reading_fails_those_who_asked_for_it_and_nobody_else() -> None:
    batcher = Batcher(1000, shape=on_cores(3))
    own = network(Cores())

    def fails(features: Tensor) -> list[float]:
        raise ArithmeticError(f"not with {len(features)}")

    bad = [batcher.submit(own, pictures(n), fails) for n in range(20)]
    good = [batcher.submit(own, pictures(n), numbers) for n in range(20)]
    assert answers(*good) == [[float(n)] for n in range(20)]
    for one in bad:
        with pytest.raises(ArithmeticError):
            one.result(10)
    with pytest.raises(ArithmeticError):
        batcher.submit(own, pictures(1), fails).result(10)
    batcher.close()
    assert not batcher.alive


def test_a_large_request_in_pieces_is_put_together_in_order() -> None:
    """Its shares are computed by several threads, and end in any order."""
    trunk, batcher = Cores(), Batcher(1000, shape=on_cores(3))
    own = network(trunk)
    waiting = [batcher.submit(own, pictures(*range(64)), numbers) for _ in range(3)]

    assert answers(*waiting) == [[float(n) for n in range(64)]] * 3
    assert batcher.queued == 0
    batcher.close()


def test_a_failure_in_one_thread_is_told_once() -> None:
    """Others may be at other shares of the same request."""

    def broken(_: Tensor) -> Tensor:
        time.sleep(0.01)
        raise RuntimeError("the network is broken")

    batcher = Batcher(1000, shape=on_cores(3))
    waiting = [batcher.submit(network(broken), pictures(*range(64)), numbers) for _ in range(3)]
    for future in waiting:
        with pytest.raises(RuntimeError, match="broken"):
            future.result(SECONDS)
    assert answers(batcher.submit(network(Cores()), pictures(5), numbers)) == [[5.0]]
    batcher.close()
