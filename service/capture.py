"""Capture: predicted images that go to the inbox, written after the answer by a thread of its own.

A prediction puts them into a bounded queue and waits for nothing. What does not fit is dropped and counted; so is what
cannot be written: the inbox is a help, not a promise.
"""

import math
import queue
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import structlog
from prometheus_client import Counter

from core.classifier import Prediction
from engine.decoder import Upload
from engine.seen_features import SeenPrediction
from learners.blobs import to_blob
from learners.version_loader import LoadedVersion
from store import samples
from store.database import Database
from store.models import ModelId
from store.samples import Bounds, NewSample
from store.settings import Settings

QUEUED = 128  # images that wait to be written
BURST = 100  # images that may come at once before the rate counts
AT_ONCE = 64  # written in one transaction
SECONDS_TO_GATHER = 0.2  # a transaction costs more than the images in it
UNCERTAIN = 0.3  # margin between the two most probable classes, below which an answer is uncertain
BEGINNING = 1_577_836_800_000  # milliseconds: ids count from 2020 on, so that JavaScript can hold them
RANDOM_BITS = 12

log = structlog.get_logger()


@dataclass(frozen=True, eq=False)
class _Offered:
    id: int
    version: LoadedVersion
    upload: Upload
    prediction: SeenPrediction


class _Allowance:
    """So many images a second. Writing more would slow predictions down, and soon push each other out of the inbox."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = float(burst), time.monotonic()

    def spend(self) -> None:
        """For one image. Raises queue.Full if it has to be left out."""
        moment = time.monotonic()
        self._left = min(self._burst, self._left + self._rate * (moment - self._at))
        self._at = moment
        if self._left < 1:
            raise queue.Full
        self._left -= 1


class Capture:
    """For one process; several do not share ids, because each adds random bits to the time."""

    def __init__(self, database: Database, settings: Settings, counter: Counter) -> None:
        self._database = database
        self.mode = settings.capture
        self._bounds = Bounds(settings.capture_images, settings.capture_bytes, settings.capture_days)
        self._counter = counter
        self._allowance = _Allowance(settings.capture_rate, BURST)
        self._queue: queue.Queue[_Offered | None] = queue.Queue(QUEUED)
        self._last = 0
        self._thread = threading.Thread(target=self._write_forever, name="capture", daemon=True)
        self._thread.start()

    def offer(
        self, version: LoadedVersion, uploads: Sequence[Upload], predictions: Sequence[Prediction]
    ) -> list[int | None]:
        """The id under which each image will be in the inbox; None for one that will not. Never waits."""
        return [self._offer(version, *pair) for pair in zip(uploads, predictions, strict=True)]

    def close(self) -> None:
        """Write what is queued."""
        self._queue.put(None)
        self._thread.join()

    def _offer(self, version: LoadedVersion, upload: Upload, prediction: Prediction) -> int | None:
        if not isinstance(prediction, SeenPrediction) or not self._wanted(prediction):
            return None
        own_id = self._next_id()
        try:
            self._allowance.spend()
            self._queue.put_nowait(_Offered(own_id, version, upload, prediction))
        except queue.Full:
            self._counter.labels("dropped").inc()
            return None
        return own_id

    def _wanted(self, prediction: Prediction) -> bool:
        if self.mode == "all" or prediction.unknown:
            return True
        return self.mode == "uncertain" and margin_of(prediction) < UNCERTAIN

    def _next_id(self) -> int:
        """Grows with time; on the event loop alone."""
        moment = (int(time.time() * 1000) - BEGINNING) << RANDOM_BITS
        self._last = max(self._last + 1, moment | random.getrandbits(RANDOM_BITS))
        return self._last

    def _write_forever(self) -> None:
        for _ in count():
            some = [self._queue.get()]
            deadline = time.monotonic() + SECONDS_TO_GATHER
            while some[-1] is not None and len(some) < AT_ONCE:
                try:
                    some.append(self._queue.get(timeout=max(0.0, deadline - time.monotonic())))
                except queue.Empty:
                    break
            offered = [one for one in some if one is not None]
            for model_id in {one.version.model_id for one in offered}:
                self._write(model_id, [one for one in offered if one.version.model_id == model_id])
            if len(offered) < len(some):
                return

    def _write(self, model_id: ModelId, offered: Sequence[_Offered]) -> None:
        """In a transaction for each model: one that was deleted meanwhile costs the others nothing."""
        try:
            with self._database.write() as db:
                samples.add(db, [_new_sample(one) for one in offered])
                samples.enforce(db, model_id, self._bounds)
        except Exception as error:  # the model was deleted, the database is away, the disk is full
            log.warning("samples dropped", number=len(offered), kind=type(error).__name__)
            self._counter.labels("dropped").inc(len(offered))
        else:
            self._counter.labels("stored").inc(len(offered))


def margin_of(prediction: Prediction) -> float:
    """Between the confidences of the two nearest classes."""
    first, second, *_ = [*(one.confidence for one in prediction.top[:2]), 0.0, 0.0]
    return first - second


def _new_sample(one: _Offered) -> NewSample:
    version, prediction = one.version, one.prediction
    top = [
        {"class_id": int(near.class_id), "confidence": _plain(near.confidence), "distance": _plain(near.distance)}
        for near in prediction.top[:5]
    ]
    return NewSample(
        one.id,
        version.model_id,
        version.number,
        version.row.weights,
        prediction.unknown,
        top[0]["confidence"] if top else 0.0,
        _plain(margin_of(prediction)),
        {"top": top},
        to_blob(prediction.feature),
        one.upload.data,
    )


def _plain(number: float) -> float:
    """Neither JSON nor every database has NaN."""
    return round(number, 6) if math.isfinite(number) else 0.0
