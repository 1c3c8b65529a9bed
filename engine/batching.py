"""Batches without waiting: whenever a core is free it takes what is queued.

An idle service answers one picture at once, on all cores; under load batches grow by themselves, and each core works on
a picture of its own: cores that share one wait for each other, the more so the busier the machine is. There are more
threads than cores, so that no core waits for Python. A request of many pictures gives way to others after each share of
it, and one whose caller has gone away is dropped. Room is given before a picture is decoded: whom there is none for
hears so at once.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import structlog
import torch
from torch import Tensor

from core.images import joined
from engine.compiled_module import CompiledModule, on_one_core
from engine.errors import Overloaded
from engine.gathering import Found, Gathering, Read
from engine.network import Network

log = structlog.get_logger()


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


class Job(Future[list[Any]]):
    """A request that has been given room: what is found in its pictures, once they have come and are computed."""

    def __init__(self, network: Network, count: int, read: Read[Any], together: int) -> None:
        super().__init__()
        self.network = network
        self.count = count  # of pictures
        self.read = read
        self.together = together
        self.pictures: Tensor | None = None  # (n, 3, s, s)
        self.since = 0.0  # when they came
        self.taken = 0
        self.found: dict[int, Sequence[Any]] = {}  # by the place of the first picture of a share

    @property
    def left(self) -> int:
        return self.count - self.taken

    @property
    def complete(self) -> bool:
        return sum(map(len, self.found.values())) == self.count

    def in_order(self) -> list[Any]:
        return [one for start in sorted(self.found) for one in self.found[start]]

    def share(self, size: int) -> "_Share":
        assert self.pictures is not None
        start, self.taken = self.taken, self.taken + size
        return _Share(self, start, self.pictures[start : self.taken])


@dataclass(eq=False)
class _Share:
    """Some pictures of a job, in one batch with others'."""

    job: Job
    start: int
    pictures: Tensor

    def __len__(self) -> int:
        return self.pictures.shape[0]


@dataclass(frozen=True, eq=False)
class _Batch:
    shares: Sequence[_Share]
    alone: bool  # nothing else is computed or waits


class Batcher:
    """Threads that feed the network; all methods may be called from any other."""

    def __init__(
        self,
        most_queued: int,
        on_batch: Callable[[int, float], None] = lambda _images, _delay: None,
        shape: Shape = IN_TURN,
    ) -> None:
        self.most_queued = most_queued
        self.on_batch = on_batch
        self.shape = shape
        self._jobs: deque[Job] = deque()
        self._admitted = 0  # pictures that have room and have not been taken yet
        self._queued = 0  # those of them that are here
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
        """Pictures that wait, some of them for being decoded."""
        return self._admitted

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def submit(
        self, network: Network, pictures: Tensor, read: Read[Found], *, together: int = 1
    ) -> "Future[list[Found]]":
        """What is found in each of the pictures (n, 3, s, s); cancel the future to take the request back."""
        job = self.admit(network, len(pictures), read, together=together)
        self.start(job, pictures)
        return job

    def admit(self, network: Network, count: int, read: Read[Any], *, together: int = 1) -> Job:
        """Room for so many pictures; it is given back when the job is cancelled, or fails before they have come.

        Together: how many pictures are best read at once, if the cores have other work until then.
        """
        job = Job(network, count, read, together)
        with self._news:
            self._require_open()
            if self._admitted and self._admitted + count > self.most_queued:
                raise Overloaded(f"{self._admitted} pictures wait already, of {self.most_queued} that may")
            self._admitted += count
        job.add_done_callback(self._leave)
        return job

    def start(self, job: Job, pictures: Tensor) -> None:
        """The pictures (n, 3, s, s) of a job that was admitted."""
        with self._news:
            self._require_open()
            if job.done():
                return
            job.pictures, job.since = pictures, time.monotonic()
            self._jobs.append(job)
            self._queued += job.count
            self._news.notify()

    def _require_open(self) -> None:
        if self._closing:
            raise Overloaded("the service is stopping")

    def _leave(self, job: "Future[list[Any]]") -> None:
        """Nothing more of it is to be computed."""
        assert isinstance(job, Job)
        if not job.left:
            return
        with self._news:
            self._admitted -= job.left
            if job in self._jobs:
                self._jobs.remove(job)
                self._queued -= job.left
                self._news.notify()  # others may have waited to be read with it
            job.taken = job.count

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
            self._news.wait_for(lambda: self._jobs or self._forgotten() or self._closing)
            if not self._jobs:
                return _Batch((), alone=False) if self._forgotten() else None
            shares = self._take()
            self._busy += 1
            if self._jobs:
                self._news.notify()  # there is enough for another
            return _Batch(shares, alone=self._busy == 1 and not self._jobs)

    def _forgotten(self) -> bool:
        """Whether features wait for pictures that will not come: those who sent them have gone away."""
        return not self._busy and self._unread.waits()

    def _due(self) -> tuple[Read[Any], dict[_Share, Tensor]] | None:
        with self._news:
            return self._unread.take(idle=not self._busy and not self._jobs)

    def _take(self) -> list[_Share]:
        """The next batch: of every request a share, in the order they came, until it is full.

        It leaves as much to each thread that is free as it takes.
        """
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
            shares.append(job.share(size))
            room -= size
            self._queued -= size
            self._admitted -= size
            if not job.left:
                self._jobs.remove(job)
        self._jobs.rotate(-sum(share.job.left > 0 for share in shares))  # those with more to come give way
        return shares

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

    def _tell(self, job: Job, start: int, found: Sequence[Any]) -> None:
        with self._news:  # another thread may be at another share of it
            job.found[start] = found
            complete = job.complete
        if complete and job.set_running_or_notify_cancel():
            job.set_result(job.in_order())

    def _fail(self, shares: Iterable[_Share], error: Exception) -> None:
        for job in {share.job for share in shares}:
            with self._news:  # another thread may be telling its answers
                if not job.done() and job.set_running_or_notify_cancel():
                    job.set_exception(error)


def _features(shares: Sequence[_Share], placed: Callable[[CompiledModule], CompiledModule]) -> dict[_Share, Tensor]:
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
