"""Predictions from the bytes of images: admit, decode, batch, search, answer.

No step waits for another thread: each hands over to the next in the thread that finished it. So the event loop is
neither held up nor woken until the answer is there.
"""

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from torch import Tensor

from core.classifier import Prediction
from core.images import fixed_views
from engine.batching import ONE_THREAD, Batcher, Job, Parallelism
from engine.decoder import Decoder, Upload
from engine.decoding import DecodedImage, EncodedImage
from engine.gathering import Search
from engine.network import Network
from engine.seen_features import Answering
from engine.watching import Watch, WatchBatch


class Predictor:
    """All methods may be called from any thread. `close` waits; none of the others does."""

    def __init__(
        self,
        *,
        max_queued: int,
        max_pixels: int,
        parallelism: Parallelism = ONE_THREAD,
        on_batch: Callable[[int, float], None] = lambda _images, _delay: None,
        watch_batch: WatchBatch | None = None,
    ) -> None:
        self.decoder = Decoder()
        self._batcher = Batcher(max_queued, parallelism, on_batch, watch_batch)
        self._max_pixels = max_pixels

    def predict(
        self, version: Answering, uploads: Sequence[Upload], top_k: int, views: int = 1, watch: Watch | None = None
    ) -> "Future[list[Prediction]]":
        """A prediction for each image, from this many views of it. Cancel the future to stop the work on them.

        Raises Overloaded at once when the queue is full, before anything is decoded. Fails with UnusableImages.
        """
        search = Search(version.classifier, top_k, views)
        job = self._batcher.admit(version.network, views * len(uploads), search, watch)
        try:
            decoded = self.decoder.decode_uploads(uploads, partial(self._encoded, version.network, views))
        except BaseException as error:  # no thread can be started: give back the room
            job.fail(error)
            raise
        # Weakly: a future keeps its callbacks, and a cycle would keep the images until Python collects garbage.
        job.answer.add_done_callback(partial(_cancel, weakref.ref(decoded)))
        decoded.add_done_callback(partial(self._start, job))
        return job.answer

    def features(
        self, network: Network, images: Sequence[Tensor], watch: Watch | None = None
    ) -> "Future[list[Tensor]]":
        """The features (M,) of each image (3, s, s), to teach with. Raises Overloaded."""
        return self._batcher.submit(network, images, watch=watch)

    @property
    def queued(self) -> int:
        """Images that wait to be decoded or computed, each as often as it has views."""
        return self._batcher.queued

    @property
    def alive(self) -> bool:
        return self._batcher.alive

    def close(self) -> None:
        """Finish what is queued and reject everything else."""
        self._batcher.close()

    def _encoded(self, network: Network, views: int, upload: Upload) -> EncodedImage:
        framing = network.framing
        look = partial(fixed_views, framing=framing, count=views)
        return EncodedImage(upload.data, framing.short_side, self._max_pixels, look)

    def _start(self, job: Job, decoded: "Future[list[DecodedImage]]") -> None:
        if decoded.cancelled():  # with the answer
            return
        if job.watch is not None:
            job.watch.decoded()
        error = decoded.exception()
        if error is None:
            self._batcher.start(job, [view for image in decoded.result() for view in image.view])
        else:
            job.fail(error)


def _cancel(decoded: "weakref.ref[Future[list[DecodedImage]]]", _answer: object) -> None:
    future = decoded()
    if future is not None:
        future.cancel()
