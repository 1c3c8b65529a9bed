"""Batches without waiting: whenever a core is free it takes what is queued.

An idle service answers one picture at once, on all cores; under load batches grow by themselves, and each core works on
a picture of its own: cores that share one wait for each other, the more so the busier the machine is. There are more
threads than cores, so that no core waits for Python. A request of many pictures gives way to others after each share of
it, and one whose caller has gone away is dropped.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import structlog
import torch
from torch import Tensor

from core.images import joined
from core.inference import Forward, on_one_core
from service.engine.gathering import Found, Gathering, Read
from service.engine.network import Network

log = structlog.get_logger()


class Overloaded(Exception):
    """More pictures wait than may."""


@dataclass(frozen=True)
class Shape:
    """How the machine is best used."""

    threads: int = 1  # each with a batch of its own
    most_images: int = 32  # in one batch

    @property
    def share(self) -> int:
        """Of one request in a batch that others wait for too."""
        return max(1, self.most_images // 4)


IN_TURN = Shape()  # for CUDA, which one thread keeps busy


def on_cores(cores: int) -> Shape:
    """One thread more than cores: while it gets a batch ready or tells its answers, the cores go on with others'.

    Of more than a few pictures at a time the cores compute no more a second, and each of them waits longer.
    """
    return Shape(threads=cores + 1, most_images=4)


@dataclass(eq=False)
class _Job:
    network: Network
    pictures: Tensor  # (n, 3, s, s)
    read: Read[Any]
    together: int
    answer: "Future[list[Any]]" = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    taken: int = 0
    found: dict[int, Sequence[Any]] = field(default_factory=dict)  # by the place of the first picture of a share

    @property
    def left(self) -> int:
        return len(self.pictures) - self.taken

    @property
    def complete(self) -> bool:
        return sum(map(len, self.found.values())) == len(self.pictures)

    def in_order(self) -> list[Any]:
        return [one for start in sorted(self.found) for one in self.found[start]]


@dataclass(eq=False)
class _Share:
    """Some pictures of a job, in one batch with others'."""

    job: _Job
    start: int
    pictures: Tensor

    def __len__(self) -> int:
        return len(self.pictures)


@dataclass(frozen=True, eq=False)
class _Batch:
    shares: Sequence[_Share]
    alone: bool  # nothing else is computed or waits


class Batcher:
    """Threads that feed the network; `submit` may be called from any other."""

    def __init__(
        self,
        most_queued: int,
        on_batch: Callable[[int, float], None] = lambda _images, _delay: None,
        shape: Shape = IN_TURN,
    ) -> None:
        self.most_queued = most_queued
        self.on_batch = on_batch
        self.shape = shape
        self._jobs: deque[_Job] = deque()
        self._queued = 0
        self._busy = 0  # threads that compute
        self._unread: Gathering[_Share] = Gathering(patience=2 * shape.threads)
        self._news = threading.Condition()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"engine {number}", daemon=True) for number in range(shape.threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """Pictures that wait."""
        return self._queued

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def submit(
        self, network: Network, pictures: Tensor, read: Read[Found], *, together: int = 1
    ) -> "Future[list[Found]]":
        """What is found in each of the pictures (n, 3, s, s); cancel the future to take the request back.

        Together: how many pictures are best read at once, if the cores have other work until then.
        """
        job = _Job(network, pictures, read, together)
        with self._news:
            if self._closing:
                raise Overloaded("the service is stopping")
            if self._queued and self._queued + len(pictures) > self.most_queued:
                raise Overloaded(f"{self._queued} pictures wait already, of {self.most_queued} that may")
            self._jobs.append(job)
            self._queued += len(pictures)
            self._news.notify()
        return job.answer

    def close(self) -> None:
        """Finish what is queued, take nothing more."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if batch.shares:
                self._compute(batch)
            while (due := self._due()) is not None:
                self._read(*due)
                with self._news:
                    self._unread.done(due[0])

    def _next(self) -> "_Batch | None":
        """What to compute, perhaps nothing, as soon as there is any; None when there will be no more."""
        with self._news:
            self._news.wait_for(lambda: self._jobs or self._closing)
            if not self._jobs:
                return None
            shares = self._take()
            if shares:
                self._busy += 1
            if self._jobs:
                self._news.notify()  # there is enough for another
            return _Batch(shares, alone=self._busy == 1 and not self._jobs)

    def _due(self) -> tuple[Read[Any], dict[_Share, Tensor]] | None:
        with self._news:
            return self._unread.take(idle=not self._busy and not self._jobs)

    def _take(self) -> list[_Share]:
        """The next batch: of every request a share, in the order they came, until it is full.

        It leaves as much to each thread that is free as it takes.
        """
        self._drop_abandoned()
        shares: list[_Share] = []
        free = max(1, self.shape.threads - self._busy)
        room = min(self.shape.most_images, -(-self._queued // free))
        alone = len(self._jobs) == 1
        trunk = self._jobs[0].network.trunk if self._jobs else None
        for job in list(self._jobs):
            if room == 0:
                break
            if job.network.trunk is not trunk:
                continue
            size = min(job.left, room if alone else self.shape.share, room)
            shares.append(_Share(job, job.taken, job.pictures[job.taken : job.taken + size]))
            job.taken += size
            room -= size
            self._queued -= size
            if not job.left:
                self._jobs.remove(job)
        self._jobs.rotate(-sum(share.job.left > 0 for share in shares))  # those with more to come give way
        return shares

    def _drop_abandoned(self) -> None:
        for job in [job for job in self._jobs if job.answer.cancelled()]:
            self._jobs.remove(job)
            self._queued -= job.left

    def _compute(self, batch: "_Batch") -> None:
        """The features of each picture, for whoever reads them."""
        self.on_batch(sum(map(len, batch.shares)), time.monotonic() - min(share.job.since for share in batch.shares))
        features: Mapping[_Share, Tensor] = {}
        try:
            features = _features(batch.shares, (lambda forward: forward) if batch.alone else on_one_core)
        except Exception as error:
            log.exception("the network failed")
            self._fail(batch.shares, error)
        with self._news:
            self._busy -= 1  # before anybody is answered: who asks again at once finds the cores free
            self._unread.batch_done()
            for share, own in features.items():
                self._unread.add(share.job.read, share.job.together, {share: own})

    def _read(self, read: Read[Any], features: Mapping[_Share, Tensor]) -> None:
        try:
            found = _each(list(features), features, read)
        except Exception as error:
            log.exception("no answer could be read from the features")
            self._fail(features, error)
        else:
            for share, answers in found.items():
                self._tell(share.job, share.start, answers)

    def _tell(self, job: _Job, start: int, found: Sequence[Any]) -> None:
        with self._news:  # another thread may be at another share of it
            job.found[start] = found
            complete = job.complete
        if complete and job.answer.set_running_or_notify_cancel():
            job.answer.set_result(job.in_order())

    def _fail(self, shares: Iterable[_Share], error: Exception) -> None:
        for job in {share.job for share in shares}:
            with self._news:
                if job in self._jobs:
                    self._jobs.remove(job)
                    self._queued -= job.left
                if job.answer.done() or not job.answer.set_running_or_notify_cancel():
                    continue
                job.answer.set_exception(error)


def _features(shares: Sequence[_Share], placed: Callable[[Forward], Forward]) -> dict[_Share, Tensor]:
    """One call of the trunk, and one of each tail, over everything that is meant for it."""
    pictures = {share: share.pictures for share in shares}
    activations = _each(shares, pictures, placed(shares[0].job.network.trunk), joined)
    features: dict[_Share, Tensor] = {}
    for network, own in _grouped(shares, lambda share: share.job.network):
        features |= _each(own, activations, placed(network.tail))
    return features


def _grouped(shares: Iterable[_Share], key: Callable[[_Share], Any]) -> Iterable[tuple[Any, list[_Share]]]:
    groups: dict[Any, list[_Share]] = {}
    for share in shares:
        groups.setdefault(key(share), []).append(share)
    return groups.items()


def _each(
    shares: Sequence[_Share],
    inputs: Mapping[_Share, Tensor],
    work: Callable[[Tensor], Any],
    join: Callable[[list[Tensor]], Tensor] = torch.cat,
) -> dict[_Share, Any]:
    """`work` done once on the inputs of all, and each one's part of the result."""
    result, end = work(join([inputs[share] for share in shares])), 0
    parts = {}
    for share in shares:
        start, end = end, end + len(share)
        parts[share] = result[start:end]
    return parts
