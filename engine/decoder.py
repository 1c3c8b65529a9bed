"""The images of requests, decoded in lanes by their cost, so that a slow image never delays the small ones of others.

Small images are decoded by as many threads as there are cores, large ones by as many others, and costly ones one at a
time by another process, which is killed when nobody waits for the image. The slow lanes have a bounded queue.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Generic, Protocol, TypeVar

from core.errors import ImageError, ImageTooCostly
from core.image_cost import Cost
from engine.cores import usable_cores
from engine.decoder_process import DecoderProcess
from engine.decoding import DECODER_PROCESS, DecodedImage, EncodedImage
from engine.errors import BadImage, Overloaded, UnusableImages

PATIENCE = 20.0  # seconds that an image may wait for a slow lane
MAX_COSTLY_SECONDS = 60.0  # for the costly images of one request together


class Upload(Protocol):
    """An image as it was sent."""

    @property
    def index(self) -> int: ...

    @property
    def filename(self) -> str | None: ...

    @property
    def data(self) -> bytes: ...


Source = TypeVar("Source")
AnyUpload = TypeVar("AnyUpload", bound=Upload)


class Decoder:
    """All methods may be called from any thread, and none of them waits."""

    def __init__(
        self, process: DecoderProcess = DECODER_PROCESS, *, max_costly_seconds: float = MAX_COSTLY_SECONDS
    ) -> None:
        cores = usable_cores()
        self.process = process
        self.max_costly_seconds = max_costly_seconds
        self.per_request = cores  # images in the small lane; those of other requests come between them
        self.small = ThreadPoolExecutor(cores, "decoding")  # more threads would only compete for the cores
        self.large = _SlowLane("large", cores, max_images=64, max_bytes=128_000_000)
        self.costly = _SlowLane("costly", 1, max_images=6, max_bytes=128_000_000)

    def decode(self, sources: Sequence[Source], load: Callable[[Source], EncodedImage]) -> "Future[list[DecodedImage]]":
        """Load and decode each source in a thread. The first error fails the future; cancel it to stop."""
        return _Request(self, sources, load).start()

    def decode_uploads(
        self, uploads: Sequence[AnyUpload], load: Callable[[AnyUpload], EncodedImage]
    ) -> "Future[list[DecodedImage]]":
        """As `decode`, but fails with UnusableImages, which names every bad image.

        An image that is too costly fails it at once: the others are not decoded.
        """
        return _Request(self, uploads, load, _bad_image).start()


def _bad_image(upload: Upload, error: ImageError) -> BadImage:
    return BadImage(upload.index, upload.filename, str(error))


class _SlowLane:
    """Threads with a bounded queue. An image that is alone in it may be of any size."""

    def __init__(self, name: str, threads: int, max_images: int, max_bytes: int) -> None:
        self._threads = ThreadPoolExecutor(threads, f"decoding {name}")
        self._name, self._max_images, self._max_bytes = name, max_images, max_bytes
        self._images = self._bytes = 0
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], None], size: int) -> None:
        """Raises Overloaded. `size`: bytes that the work holds in memory."""
        with self._lock:
            full = self._images >= self._max_images or self._bytes + size > self._max_bytes
            if self._images and full:
                raise Overloaded(f"{self._images} {self._name} images are waiting to be decoded already")
            self._images += 1
            self._bytes += size
        self._threads.submit(self._run, work, size)

    def _run(self, work: Callable[[], None], size: int) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._images -= 1
                self._bytes -= size


class _Request(Generic[Source]):
    """The images of one request on their way through the lanes."""

    def __init__(
        self,
        decoder: Decoder,
        sources: Sequence[Source],
        load: Callable[[Source], EncodedImage],
        bad_image: Callable[[Source, ImageError], BadImage] | None = None,
    ) -> None:
        self._decoder = decoder
        self._sources = sources
        self._load = load
        self._bad_image = bad_image
        self._future: Future[list[DecodedImage]] = Future()
        self._outcomes: dict[int, DecodedImage | BadImage] = {}  # by place
        self._done = count(1)
        self._costly_seconds = 0.0  # used so far

    def start(self) -> "Future[list[DecodedImage]]":
        if not self._sources:
            self._future.set_result([])
        for place in range(min(self._decoder.per_request, len(self._sources))):
            self._decoder.small.submit(self._do, place, self._look)
        return self._future

    def _do(self, place: int, step: Callable[[int], DecodedImage | None]) -> None:
        """Do one step of an image's way, unless nobody waits for it any more."""
        if self._future.done():
            return
        try:
            try:
                outcome: DecodedImage | BadImage | None = step(place)
            except ImageError as error:
                outcome = self._bad(place, error)
            if outcome is not None:
                self._finish(place, outcome)
        except Exception as error:  # also one of a thread that cannot be started
            self._fail(error)

    def _look(self, place: int) -> DecodedImage | None:
        """Decode a small image, or pass it on to a slow lane."""
        image = self._load(self._sources[place])
        cost = image.cost()
        if cost is Cost.SMALL:
            return image.decode()
        lane = self._decoder.large if cost is Cost.LARGE else self._decoder.costly
        step = partial(self._decode_slowly, image, cost, time.monotonic())
        lane.submit(partial(self._do, place, step), len(image.data))
        return None

    def _decode_slowly(self, image: EncodedImage, cost: Cost, since: float, _place: int) -> DecodedImage:
        start = time.monotonic()
        if start - since > PATIENCE:
            raise Overloaded(f"the image has waited {PATIENCE:g} seconds to be decoded")
        if cost is Cost.LARGE:
            return image.decode()
        limit = self._decoder.max_costly_seconds
        if self._costly_seconds > limit and not image.stored:
            raise ImageTooCostly(f"the costly images of this request take over {limit:g} seconds; send fewer")
        try:
            return image.decode_costly(self._decoder.process, abandoned=self._future.done)
        finally:  # a broken image counts too; without a lock: the costly lane has one thread
            self._costly_seconds += time.monotonic() - start

    def _bad(self, place: int, error: ImageError) -> BadImage:
        """Raises instead if the error is not one image's alone."""
        if self._bad_image is None:
            raise error
        bad = self._bad_image(self._sources[place], error)
        if isinstance(error, ImageTooCostly):
            raise UnusableImages([bad], len(self._sources)) from error
        return bad

    def _finish(self, place: int, outcome: DecodedImage | BadImage) -> None:
        self._outcomes[place] = outcome
        if next(self._done) == len(self._sources):  # true in one thread only
            self._complete()
        elif place + self._decoder.per_request < len(self._sources):
            self._decoder.small.submit(self._do, place + self._decoder.per_request, self._look)

    def _complete(self) -> None:
        outcomes = [self._outcomes[place] for place in range(len(self._sources))]
        bad = [outcome for outcome in outcomes if isinstance(outcome, BadImage)]
        if bad:
            self._fail(UnusableImages(bad, len(outcomes)))
            return
        with suppress(InvalidStateError):  # it was cancelled
            self._future.set_result([outcome for outcome in outcomes if isinstance(outcome, DecodedImage)])

    def _fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):  # it was cancelled, or has failed before
            self._future.set_exception(error)
