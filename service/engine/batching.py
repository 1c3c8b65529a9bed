"""Batches without waiting: whenever the network is free it takes what is queued.

An idle service answers one picture at once; under load batches grow by themselves. A request of many pictures gives way
to others after each share of it, and one whose caller has gone away is dropped.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
import torch
from torch import Tensor

from core.images import joined
from service.engine.network import Network

log = structlog.get_logger()

MOST_IMAGES = 32  # in one batch; on a CPU a larger one is no faster
SHARE = 8  # of one request in a batch that others wait for too


class Overloaded(Exception):
    """More pictures wait than may."""


Found = TypeVar("Found")
Read = Callable[[Tensor], Sequence[Found]]
"""Features (n, M) to what is wanted of each picture. What is equal is called once for a whole batch."""


@dataclass(eq=False)
class _Job:
    network: Network
    pictures: Tensor  # (n, 3, s, s)
    read: Read[Any]
    answer: "Future[list[Any]]" = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    taken: int = 0
    found: list[Any] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.pictures) - self.taken


class Batcher:
    """One thread that feeds the network; `submit` may be called from any other."""

    def __init__(self, most_queued: int, on_batch: Callable[[int, float], None] = lambda _images, _delay: None) -> None:
        self.most_queued = most_queued
        self.on_batch = on_batch
        self._jobs: deque[_Job] = deque()
        self._queued = 0
        self._news = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Pictures that wait."""
        return self._queued

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, network: Network, pictures: Tensor, read: Read[Found]) -> "Future[list[Found]]":
        """What is found in each of the pictures (n, 3, s, s); cancel the future to take the request back."""
        job = _Job(network, pictures, read)
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
            self._news.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._jobs or self._closing)
                if not self._jobs:
                    return
                shares = self._take()
            if shares:
                self._compute(shares)

    def _take(self) -> list[tuple[_Job, Tensor]]:
        """The next batch: of every request a share, in the order they came, until it is full."""
        self._drop_abandoned()
        shares: list[tuple[_Job, Tensor]] = []
        room = MOST_IMAGES
        alone = len(self._jobs) == 1
        trunk = self._jobs[0].network.trunk if self._jobs else None
        for job in list(self._jobs):
            if room == 0:
                break
            if job.network.trunk is not trunk:
                continue
            size = min(job.left, room if alone else SHARE, room)
            shares.append((job, job.pictures[job.taken : job.taken + size]))
            job.taken += size
            room -= size
            if not job.left:
                self._jobs.remove(job)
        self._jobs.rotate(-sum(job.left > 0 for job, _ in shares))  # those with more to come give way
        self._queued -= MOST_IMAGES - room
        return shares

    def _drop_abandoned(self) -> None:
        for job in [job for job in self._jobs if job.answer.cancelled()]:
            self._jobs.remove(job)
            self._queued -= job.left

    def _compute(self, shares: list[tuple[_Job, Tensor]]) -> None:
        pictures = joined([share for _, share in shares])
        self.on_batch(len(pictures), time.monotonic() - min(job.since for job, _ in shares))
        try:
            activations = shares[0][0].network.trunk(pictures)
            self._answer(shares, activations)
        except Exception as error:
            log.exception("the network failed")
            for job, _ in shares:
                self._fail(job, error)

    def _answer(self, shares: list[tuple[_Job, Tensor]], activations: Tensor) -> None:
        """One call of each tail and of each reading, over everything in the batch that is meant for it."""
        parts = dict(zip((job for job, _ in shares), activations.split([len(s) for _, s in shares]), strict=True))
        for network, own in _grouped(parts, lambda job: job.network):
            features = _each(own, parts, network.tail)
            for read, some in _grouped(own, lambda job: job.read):
                for job, found in _each(some, features, read).items():
                    job.found.extend(found)
                    if not job.left and job.answer.set_running_or_notify_cancel():
                        job.answer.set_result(job.found)

    def _fail(self, job: _Job, error: Exception) -> None:
        with self._news:
            if job in self._jobs:
                self._jobs.remove(job)
                self._queued -= job.left
        if not job.answer.done() and job.answer.set_running_or_notify_cancel():
            job.answer.set_exception(error)


def _grouped(jobs: Iterable[_Job], key: Callable[[_Job], Any]) -> Iterable[tuple[Any, list[_Job]]]:
    groups: dict[Any, list[_Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return groups.items()


def _each(jobs: Sequence[_Job], inputs: Mapping[_Job, Tensor], work: Callable[[Tensor], Any]) -> dict[_Job, Any]:
    """`work` done once on the inputs of all, and each job's part of the result."""
    result, end = work(torch.cat([inputs[job] for job in jobs])), 0
    parts = {}
    for job in jobs:
        start, end = end, end + len(inputs[job])
        parts[job] = result[start:end]
    return parts
