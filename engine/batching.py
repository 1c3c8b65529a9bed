"""Batches without waiting: a thread that is free takes what is queued.

An idle service computes an image at once, on all cores. Under load batches grow by themselves, and each core computes
an image of its own, because cores that share one image wait for each other. The queue is fair by image: it takes one
image of each request in turn. A request whose caller has left is dropped. Room in the queue is given before an image is
decoded, so that a request that finds none is rejected at once.

Several views of one image are as many images here, for room and for turns, until their features are there: then they
are searched as one.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
import torch
from torch import Tensor

from core.images import stacked
from engine.compiled_module import throughput_mode
from engine.errors import Overloaded
from engine.gathering import Gathering, Lot, Search
from engine.network import Network
from engine.watching import Watch, WatchBatch

log = structlog.get_logger()


@dataclass(frozen=True)
class Parallelism:
    """How to use the machine."""

    threads: int = 1  # each computes a batch of its own
    max_batch: int = 32  # images


ONE_THREAD = Parallelism()  # keeps a CUDA device busy


def for_cores(cores: int) -> Parallelism:
    """One thread more than cores: while it prepares a batch or answers one, the cores compute those of others.

    Larger batches compute no more images per second on a CPU, and each image waits longer.
    """
    return Parallelism(threads=cores + 1, max_batch=4)


@dataclass(eq=False)
class Job:
    """The images of one request, and their results as they come."""

    network: Network
    count: int  # of images
    search: Search | None  # None: the features are the result
    watch: Watch | None = None
    answer: "Future[list[Any]]" = field(default_factory=Future)  # a result for each image, or for all views of one
    images: Sequence[Tensor] = ()  # (3, s, s) each, once they are decoded
    queued_at: float = 0.0
    taken: int = 0  # images, in order, that are in a batch or computed
    missing: int = field(init=False)  # results
    results: list[Any] = field(init=False)  # by place
    features: dict[int, Tensor] = field(default_factory=dict)  # by place, of views that wait for others of their image

    def __post_init__(self) -> None:
        self.missing = self.count // self.views
        self.results = [None] * self.missing

    @property
    def views(self) -> int:
        """How many images in a row are views of one, and get one result."""
        return 1 if self.search is None else self.search.views

    @property
    def left(self) -> int:
        return self.count - self.taken

    def collect(self, place: int, features: Tensor) -> Tensor | None:
        """What to search for: the features of an only view (M,), or of all views (v, M) when the last of them comes."""
        if self.views == 1:
            return features
        self.features[place] = features
        first = place - place % self.views
        own = range(first, first + self.views)
        if not all(view in self.features for view in own):
            return None
        return torch.stack([self.features.pop(view) for view in own])

    def put(self, place: int, result: Any) -> bool:
        """Whether all results are there now."""
        self.results[place] = result
        self.missing -= 1
        return not self.missing

    def succeed(self) -> None:
        with suppress(InvalidStateError):  # it was cancelled
            self.answer.set_result(self.results)

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):  # it was cancelled, or has failed before
            self.answer.set_exception(error)


class _Image(NamedTuple):
    job: Job
    place: int


class _Batch(NamedTuple):
    images: list[_Image]
    alone: bool  # nothing else is computed or waits


class Batcher:
    """Threads that compute what is queued. All methods may be called from any thread."""

    def __init__(
        self,
        max_queued: int,
        parallelism: Parallelism = ONE_THREAD,
        on_batch: Callable[[int, float], None] = lambda _images, _delay: None,
        watch_batch: WatchBatch | None = None,
    ) -> None:
        self.max_queued = max_queued
        self.parallelism = parallelism
        self.on_batch = on_batch
        self.watch_batch = watch_batch
        self._admitted: dict[Future[list[Any]], Job] = {}  # jobs without an answer
        self._jobs: deque[Job] = deque()  # those of them with images to compute
        self._queued = 0  # images of admitted jobs that no thread has taken, decoded or not
        self._decoded = 0  # those of them that can be taken
        self._computing = 0  # threads
        self._gathering: Gathering[_Image] = Gathering(patience=2 * parallelism.threads)
        self._changed = threading.Condition()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"engine {number}", daemon=True)
            for number in range(parallelism.threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        """Images that wait to be decoded or computed."""
        return self._queued

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def admit(self, network: Network, count: int, search: Search | None = None, watch: Watch | None = None) -> Job:
        """Give room to this many images. Raises Overloaded.

        The room is given back image by image as they are computed, and at once when the answer is cancelled or fails.
        """
        job = Job(network, count, search, watch)
        with self._changed:
            if self._closing:
                raise Overloaded("the service is stopping")
            if self._queued and self._queued + count > self.max_queued:
                raise Overloaded(f"{self._queued} images are waiting already, and at most {self.max_queued} may wait")
            self._queued += count
            self._admitted[job.answer] = job
        job.answer.add_done_callback(self._release)
        return job

    def start(self, job: Job, images: Sequence[Tensor]) -> None:
        """Queue the images of a job that was admitted, (3, s, s) each."""
        with self._changed:
            if job.answer.done():
                return
            if not self._closing:
                job.images, job.queued_at = images, time.monotonic()
                self._jobs.append(job)
                self._decoded += job.count
                self._changed.notify()
                return
        job.fail(Overloaded("the service is stopping"))

    def submit(
        self,
        network: Network,
        images: Sequence[Tensor],
        search: Search | None = None,
        watch: Watch | None = None,
    ) -> "Future[list[Any]]":
        """Admit and start. The result has a prediction for each image; without a search, its features (M,)."""
        job = self.admit(network, len(images), search, watch)
        self.start(job, images)
        return job.answer

    def close(self) -> None:
        """Finish what is queued and reject everything else."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _release(self, answer: "Future[list[Any]]") -> None:
        """Forget a job that has its answer, and drop those of its images that no thread has taken."""
        with self._changed:
            job = self._admitted.pop(answer)
            if not job.left:
                return
            self._queued -= job.left
            if job in self._jobs:
                self._jobs.remove(job)
                self._decoded -= job.left
            job.taken = job.count

    def _run(self) -> None:
        while (task := self._next_task()) is not None:
            if isinstance(task, _Batch):
                self._compute(task)
            else:
                self._search(task)
            task = None  # while this thread waits, it must keep neither images nor a version in memory

    def _next_task(self) -> _Batch | Lot[_Image] | None:
        """Wait for something to do; None when there will be nothing any more."""
        with self._changed:
            while True:
                lot = self._gathering.take(idle=not self._computing and not self._jobs)
                if lot is not None:
                    return lot
                if self._jobs:
                    return self._take_batch()
                if self._closing:
                    return None
                self._changed.wait()

    def _take_batch(self) -> _Batch:
        """As many images as are left for each thread that is free, at most a full batch."""
        free = max(1, self.parallelism.threads - self._computing)
        images = self._take_images(min(self.parallelism.max_batch, -(-self._decoded // free)))
        self._queued -= len(images)
        self._decoded -= len(images)
        self._computing += 1
        if self._jobs:
            self._changed.notify()  # there is enough for another thread
        return _Batch(images, alone=self._computing == 1 and not self._jobs)

    def _take_images(self, most: int) -> list[_Image]:
        """One image of each request in turn. They share a trunk; requests for another keep their place in the queue."""
        trunk = self._jobs[0].network.trunk
        images: list[_Image] = []
        others: list[Job] = []
        while self._jobs and len(images) < most:
            job = self._jobs.popleft()
            if job.network.trunk is not trunk:
                others.append(job)
                continue
            images.append(_Image(job, job.taken))
            job.taken += 1
            if job.left:
                self._jobs.append(job)
        self._jobs.extendleft(reversed(others))
        return images

    def _compute(self, batch: _Batch) -> None:
        self.on_batch(len(batch.images), time.monotonic() - min(image.job.queued_at for image in batch.images))
        over = None if self.watch_batch is None else self.watch_batch([image.job.watch for image in batch.images])
        features: list[Tensor] = []
        try:
            features = _features(batch)
        except Exception as error:
            log.exception("the network failed")
            _fail(batch.images, error)
        if over is not None:
            over()
        computed = list(zip(batch.images, features, strict=False))
        with self._changed:
            self._computing -= 1  # before anything is answered: a caller that asks again at once finds the cores free
            self._gathering.count_batch()
            for (job, place), own in computed:
                if job.search is not None and (wanted := job.collect(place, own)) is not None:
                    self._gathering.add(job.search, _Image(job, place // job.views), wanted)
        self._deliver((image, own) for image, own in computed if image.job.search is None)

    def _search(self, lot: Lot[_Image]) -> None:
        images = [image for image, _ in lot.features]
        try:
            features = torch.stack([own for _, own in lot.features])  # (n, M), or (n, v, M) of several views
            predictions = lot.search.classifier.predict(features, lot.search.top_k)
        except Exception as error:
            log.exception("the class search failed")
            _fail(images, error)
        else:
            self._deliver(zip(images, predictions, strict=True))
        with self._changed:
            self._gathering.finish(lot.search)

    def _deliver(self, results: Iterable[tuple[_Image, Any]]) -> None:
        with self._changed:  # another thread may deliver other images of the same job
            complete = [image.job for image, result in results if image.job.put(image.place, result)]
        for job in complete:
            job.succeed()


def _fail(images: Iterable[_Image], error: Exception) -> None:
    for job in {image.job for image in images}:
        job.fail(error)


def _features(batch: _Batch) -> list[Tensor]:
    """The features of each image, (M,): one call of the trunk for all, one of each tail for its own."""
    networks = [image.job.network for image in batch.images]
    trunk = networks[0].trunk
    images = stacked([job.images[place] for job, place in batch.images])  # (n, 3, s, s)
    activations = (trunk if batch.alone else throughput_mode(trunk))(images)
    features: dict[int, Tensor] = {}
    for network in set(networks):
        tail = network.tail if batch.alone else throughput_mode(network.tail)
        places = [place for place, other in enumerate(networks) if other is network]
        own = activations if len(places) == len(networks) else activations[places]
        features.update(zip(places, tail(own), strict=True))
    return [features[place] for place in range(len(networks))]
