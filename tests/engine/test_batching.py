"""Batches form by themselves: nobody waits for others, is forgotten, or gets the answer of another."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.batching import ONE_THREAD, Batcher, Parallelism, for_cores
from engine.errors import Overloaded
from engine.gathering import Search
from engine.network import Network
from tests.fake_networks import SECONDS, Gate, Numbers, images, network, numbers
from tests.waiting import until

MAX_BATCH = ONE_THREAD.max_batch


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def batcher(gate: Gate) -> Iterator[Batcher]:
    made = Batcher(max_queued=200)
    yield made
    gate.open.set()
    made.close()


@pytest.fixture
def busy(batcher: Batcher, gate: Gate) -> Network:
    """A network that is computing: what is submitted now waits."""
    own = network(gate)
    batcher.submit(own, images(99), numbers())
    assert gate.entered.acquire(timeout=SECONDS)
    return own


def answers(*futures: "Future[list[Any]]") -> list[list[Any]]:
    return [future.result(SECONDS) for future in futures]


def test_a_single_image_waits_for_no_other(batcher: Batcher, gate: Gate) -> None:
    """An idle engine computes every image as it comes, by itself."""
    gate.open.set()
    own = network(gate)
    for _ in range(50):
        assert answers(batcher.submit(own, images(7), numbers())) == [[7.0]]

    assert gate.sizes == [1] * 50


def test_what_has_queued_up_is_computed_together(batcher: Batcher, gate: Gate, busy: Network) -> None:
    search = numbers()
    waiting = [batcher.submit(busy, images(n, n + 100), search) for n in range(10)]
    assert batcher.queued == 20
    gate.open.set()

    assert answers(*waiting) == [[n, n + 100.0] for n in range(10)]
    assert gate.sizes == [1, 20]
    assert batcher.queued == 0


def test_a_batch_has_a_largest_size(batcher: Batcher, gate: Gate, busy: Network) -> None:
    waiting = [batcher.submit(busy, images(n), numbers()) for n in range(2 * MAX_BATCH + 3)]
    gate.open.set()

    assert answers(*waiting) == [[float(n)] for n in range(2 * MAX_BATCH + 3)]
    assert gate.sizes == [1, MAX_BATCH, MAX_BATCH, 3]


def test_a_large_request_alone_fills_batches(batcher: Batcher, gate: Gate, busy: Network) -> None:
    large = batcher.submit(busy, images(*range(64)), numbers())
    gate.open.set()

    assert answers(large) == [[float(n) for n in range(64)]]
    assert max(gate.sizes) == MAX_BATCH


def test_one_image_does_not_wait_for_sixty_four(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """Small requests that came later are in the next batch, beside images of the large ones."""
    large = [batcher.submit(busy, images(*range(64)), numbers()) for _ in range(2)]
    small = [batcher.submit(busy, images(100 + n), numbers()) for n in range(4)]
    gate.open.set()

    assert answers(*small) == [[100.0 + n] for n in range(4)]
    assert answers(*large) == [[float(n) for n in range(64)]] * 2, "in order, though in several batches"
    assert gate.batches[1][:6] == [0, 0, 100, 101, 102, 103]


def test_requests_take_turns_image_by_image(batcher: Batcher, gate: Gate, busy: Network) -> None:
    first, second = (batcher.submit(busy, images(*[n] * 64), numbers()) for n in (1, 2))
    gate.open.set()
    answers(first, second)

    assert all(batch == [1.0, 2.0] * (MAX_BATCH // 2) for batch in gate.batches[1:])


def test_each_gets_the_answer_of_its_own_weights_and_search(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """Versions share a trunk and differ in the tail. Equal searches are done in one call."""
    classifier, other = Numbers(), network(gate, factor=-1.0)
    single, double = Search(classifier, 1), Search(classifier, 2)
    waiting = [
        batcher.submit(busy, images(1), single),
        batcher.submit(other, images(2), single),
        batcher.submit(busy, images(3), double),
        batcher.submit(other, images(4, 5), double),
        batcher.submit(busy, images(6), Search(classifier, 2)),
    ]
    gate.open.set()

    assert answers(*waiting) == [[1.0], [-2.0], [6.0], [-8.0, -10.0], [12.0]]
    assert gate.sizes == [1, 6], "one pass of the trunk for all"
    assert sorted(classifier.sizes) == [2, 4], "one search for each question"


def test_without_a_search_the_features_are_the_result(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """Teaching asks for them, in the same batches as predictions."""
    waiting = batcher.submit(busy, images(3, 4)), batcher.submit(busy, images(5), numbers())
    gate.open.set()

    features, predictions = answers(*waiting)
    assert torch.equal(torch.stack(features), torch.tensor([[3.0], [4.0]]))
    assert predictions == [5.0]
    assert gate.sizes == [1, 3]


def test_the_views_of_an_image_are_searched_as_one(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """In their order, together with other images that are seen in as many views, apart from those that are not."""
    classifier = Numbers()
    single, double = Search(classifier, 1), Search(classifier, 1, views=2)
    waiting = [
        batcher.submit(busy, images(1, 2, 3, 4), double),
        batcher.submit(busy, images(5, 6), single),
        batcher.submit(busy, images(7, 8), double),
    ]
    assert batcher.queued == 8, "every view takes room"
    gate.open.set()

    assert answers(*waiting) == [[[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0], [[7.0, 8.0]]]
    assert gate.sizes == [1, 8]
    assert sorted(classifier.sizes) == [2, 3], "one search for each question"
    assert batcher.queued == 0


def test_requests_take_turns_view_by_view(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """Two images of four views have no more turns than eight images."""
    views = batcher.submit(busy, images(*[1] * 8), Search(Numbers(), 1, views=4))
    plain = batcher.submit(busy, images(*[2] * 8), numbers())
    gate.open.set()
    answers(views, plain)

    assert gate.batches[1] == [1.0, 2.0] * 8


def test_views_that_several_threads_compute_find_each_other() -> None:
    """Whichever is done last."""
    batcher = Batcher(1000, for_cores(3))
    search = Search(Numbers(), 1, views=5)
    waiting = [batcher.submit(network(Cores()), images(*range(20)), search) for _ in range(6)]

    expected = [[float(first + view) for view in range(5)] for first in (0, 5, 10, 15)]
    assert answers(*waiting) == [expected] * 6
    batcher.close()


def test_trunks_are_not_mixed(batcher: Batcher, gate: Gate, busy: Network) -> None:
    sizes: list[int] = []

    def other_trunk(batch: Tensor) -> Tensor:
        sizes.append(len(batch))
        return batch.float() + 1

    other = network(other_trunk)
    waiting = [batcher.submit(own, images(n, n), numbers()) for n, own in enumerate([busy, other] * 5)]
    gate.open.set()

    assert answers(*waiting) == [[float(n + n % 2)] * 2 for n in range(10)]
    assert (gate.sizes, sizes) == ([1, 10], [10])


def test_a_cancelled_request_is_dropped(batcher: Batcher, gate: Gate, busy: Network) -> None:
    gone = [batcher.submit(busy, images(*range(8)), numbers()) for _ in range(3)]
    stays = batcher.submit(busy, images(5), numbers())
    assert all(future.cancel() for future in gone)
    gate.open.set()

    assert answers(stays) == [[5.0]]
    assert gate.batches[1:] == [[5.0]], "nothing was computed for those who left"
    assert batcher.queued == 0
    with pytest.raises(CancelledError):
        gone[0].result(0)


def test_a_request_may_be_cancelled_while_it_is_computed(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """Part of it is in a batch; the rest leaves the queue, and its results are thrown away."""
    large = batcher.submit(busy, images(*range(MAX_BATCH + 8)), numbers())
    gate.open.set()
    until(lambda: len(gate.batches) > 1, "a part of it is computed")
    large.cancel()

    assert answers(batcher.submit(busy, images(5), numbers())) == [[5.0]]
    assert batcher.queued == 0
    assert batcher.alive


def test_a_full_queue_rejects_at_once(batcher: Batcher, gate: Gate, busy: Network) -> None:
    """Without waiting for the batch that is being computed."""
    waiting = [batcher.submit(busy, images(*range(50)), numbers()) for _ in range(4)]

    with pytest.raises(Overloaded, match="200 images are waiting already, and at most 200 may wait"):
        batcher.submit(busy, images(1), numbers())

    gate.open.set()
    answers(*waiting)
    assert answers(batcher.submit(busy, images(1), numbers())) == [[1.0]], "and takes more when there is room again"


def test_room_is_given_before_the_images_are_there(batcher: Batcher, gate: Gate) -> None:
    """So that a request that finds none is rejected before an image of it is decoded."""
    gate.open.set()
    own = network(gate)
    job = batcher.admit(own, 200, numbers())
    with pytest.raises(Overloaded, match="200 images are waiting already"):
        batcher.admit(own, 1, numbers())

    batcher.start(job, images(*range(200)))

    assert answers(job.answer) == [[float(n) for n in range(200)]]
    assert batcher.queued == 0


def test_room_is_given_back_when_no_images_come(batcher: Batcher, gate: Gate) -> None:
    """Because they could not be decoded, or because the caller has left."""
    gate.open.set()
    own = network(gate)
    broken, gone = (batcher.admit(own, 100, numbers()) for _ in range(2))
    broken.fail(ValueError("not an image"))
    assert batcher.queued == 100
    assert gone.answer.cancel()
    assert batcher.queued == 0

    batcher.start(gone, images(*range(100)))

    assert answers(batcher.submit(own, images(1), numbers())) == [[1.0]]
    assert gate.sizes == [1], "nothing was computed for those who left"


def test_images_that_come_after_closing_are_rejected(gate: Gate) -> None:
    batcher = Batcher(max_queued=100)
    job = batcher.admit(network(gate), 1, numbers())
    batcher.close()

    batcher.start(job, images(1))

    with pytest.raises(Overloaded, match="stopping"):
        job.answer.result(0)
    assert batcher.queued == 0


def test_what_is_answered_is_let_go(batcher: Batcher, gate: Gate) -> None:
    """At once, not at the next garbage collection: the images of all requests since then would pile up."""
    gate.open.set()
    (image,) = images(1)
    left = weakref.ref(image)
    gc.disable()
    try:
        answers(batcher.submit(network(gate), [image], numbers()))
        del image
        answers(batcher.submit(network(gate), images(2), numbers()))  # the thread has moved on
        assert left() is None
    finally:
        gc.enable()


def test_a_request_larger_than_the_queue_is_taken_when_nothing_waits(gate: Gate) -> None:
    small = Batcher(max_queued=4)
    gate.open.set()
    assert len(small.submit(network(gate), images(*range(10)), numbers()).result(SECONDS)) == 10
    small.close()


def test_a_network_that_fails_fails_its_batch_alone(batcher: Batcher, gate: Gate, busy: Network) -> None:
    gate.fails = True
    waiting = batcher.submit(busy, images(*range(40)), numbers())
    gate.open.set()
    with pytest.raises(RuntimeError, match="broken"):
        waiting.result(SECONDS)

    gate.fails = False
    assert batcher.alive
    assert answers(batcher.submit(busy, images(3), numbers())) == [[3.0]]
    assert batcher.queued == 0


def test_closing_finishes_what_is_queued(gate: Gate) -> None:
    own, batcher = network(gate), Batcher(max_queued=100)
    waiting = [batcher.submit(own, images(n), numbers()) for n in range(5)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    until(lambda: batcher._closing, "it is closing")
    with pytest.raises(Overloaded, match="stopping"):
        batcher.submit(own, images(1), numbers())
    gate.open.set()

    assert answers(*waiting) == [[float(n)] for n in range(5)]
    closing.join(SECONDS)
    assert not batcher.alive


class Cores:
    """A trunk that knows in which mode it was called, and how many batches were computed at a time."""

    def __init__(self) -> None:
        self.latency: list[int] = []
        self.by_core: list[int] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def __call__(self, batch: Tensor) -> Tensor:
        self.latency.append(len(batch))
        return batch.float()

    def throughput(self, batch: Tensor) -> Tensor:
        with self._lock:
            self.by_core.append(len(batch))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(0.02)
        with self._lock:
            self._at_once -= 1
        return batch.float()

    @property
    def computed(self) -> int:
        return sum(self.latency) + sum(self.by_core)


def test_a_request_that_is_alone_gets_all_cores() -> None:
    trunk, batcher = Cores(), Batcher(100, for_cores(2))
    own = network(trunk)
    for number in range(5):
        assert answers(batcher.submit(own, images(number), numbers())) == [[float(number)]]
    batcher.close()

    assert (trunk.latency, trunk.by_core) == ([1] * 5, [])


def test_many_requests_are_computed_with_one_core_for_each_image() -> None:
    trunk, batcher = Cores(), Batcher(1000, for_cores(3))
    own = network(trunk)
    waiting = [batcher.submit(own, images(n % 200, 7), numbers()) for n in range(60)]

    assert answers(*waiting) == [[float(n % 200), 7.0] for n in range(60)]
    batcher.close()
    assert trunk.most_at_once == for_cores(3).threads
    assert trunk.computed == 120
    assert max(trunk.by_core) <= for_cores(3).max_batch
    assert not batcher.alive


def test_features_that_come_during_a_search_are_searched_together_after_it() -> None:
    trunk, batcher = Cores(), Batcher(1000, for_cores(3))
    own, searching, go_on = network(trunk), threading.Event(), threading.Event()

    class Slow(Numbers):
        def predict(self, features: Tensor, top_k: int) -> list[Any]:
            searching.set()
            assert go_on.wait(SECONDS)
            return super().predict(features, top_k)

    slow = Slow()
    waiting = [batcher.submit(own, images(1), Search(slow, 1))]
    assert searching.wait(SECONDS)
    waiting += [batcher.submit(own, images(n), Search(slow, 1)) for n in range(2, 12)]
    other = batcher.submit(own, images(12), numbers())
    assert answers(other) == [[12.0]], "another search does not wait"
    until(lambda: trunk.computed == 12 and not batcher._computing, "all features are there")
    go_on.set()

    assert answers(*waiting) == [[float(n)] for n in range(1, 12)]
    assert slow.sizes == [1, 10]
    batcher.close()
    assert not batcher.alive


def test_a_failed_search_fails_those_who_asked_for_it_and_nobody_else() -> None:
    batcher = Batcher(1000, for_cores(3))
    own = network(Cores())

    class Broken(Numbers):
        def predict(self, features: Tensor, top_k: int) -> list[Any]:
            raise ArithmeticError(f"not with {len(features)}, {top_k}")

    broken, right = Search(Broken(), 1), numbers()
    bad = [batcher.submit(own, images(n), broken) for n in range(20)]
    good = [batcher.submit(own, images(n), right) for n in range(20)]
    assert answers(*good) == [[float(n)] for n in range(20)]
    for one in [*bad, batcher.submit(own, images(1), broken)]:
        with pytest.raises(ArithmeticError):
            one.result(SECONDS)
    batcher.close()
    assert not batcher.alive


def test_a_large_request_is_put_together_in_order() -> None:
    """Its images are computed by several threads, and are done in any order."""
    batcher = Batcher(1000, for_cores(3))
    own = network(Cores())
    waiting = [batcher.submit(own, images(*range(64)), numbers()) for _ in range(3)]

    assert answers(*waiting) == [[float(n) for n in range(64)]] * 3
    assert batcher.queued == 0
    batcher.close()


def test_a_job_that_fails_in_several_threads_fails_once() -> None:
    def broken(_: Tensor) -> Tensor:
        time.sleep(0.01)
        raise RuntimeError("the network is broken")

    batcher = Batcher(1000, Parallelism(threads=4, max_batch=4))
    waiting = [batcher.submit(network(broken), images(*range(64)), numbers()) for _ in range(3)]
    for future in waiting:
        with pytest.raises(RuntimeError, match="broken"):
            future.result(SECONDS)
    assert answers(batcher.submit(network(Cores()), images(5), numbers())) == [[5.0]]
    batcher.close()
