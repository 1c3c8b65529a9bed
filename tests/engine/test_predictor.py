"""From the bytes of images to predictions: in order, together with others, and never for a caller that has left."""

import gc
import io
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from core.images import MAX_PIXELS, Framing, centre_view, decode, fixed_views
from core.space import Space
from engine.batching import for_cores
from engine.errors import Overloaded, UnusableImages
from engine.network import Network
from engine.predictor import Predictor
from tests.fake_networks import SECONDS, Gate, Numbers, images
from tests.waiting import until

FRAMING = Framing(8)


@dataclass(frozen=True)
class Sent:
    index: int
    filename: str | None
    data: bytes = field(repr=False)


@dataclass(frozen=True, eq=False)
class Served:
    """A version as the predictor sees it."""

    network: Network
    classifier: Numbers


def png(value: int) -> bytes:
    return encoded_png(Image.new("RGB", (20, 20), (value, 0, 0)))


def encoded_png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def sent(*values: int) -> list[Sent]:
    return [Sent(place, f"{value}.png", png(value)) for place, value in enumerate(values)]


def first_pixel(activations: Tensor) -> Tensor:
    return activations[:, 0, 0, :1]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def version(gate: Gate) -> Served:
    return Served(Network((1, 0), gate, first_pixel, Space("cosine"), FRAMING, 1), Numbers())


@pytest.fixture
def predictor(gate: Gate) -> Iterator[Predictor]:
    made = Predictor(max_queued=20, max_pixels=MAX_PIXELS)
    yield made
    gate.open.set()
    made.close()


def test_each_image_gets_its_prediction(predictor: Predictor, version: Served, gate: Gate) -> None:
    gate.open.set()

    assert predictor.predict(version, sent(5, 9, 2), top_k=1).result(SECONDS) == [5.0, 9.0, 2.0]
    assert predictor.predict(version, sent(5), top_k=3).result(SECONDS) == [15.0], "the classifier is asked for three"


def test_the_network_sees_the_centre_view(predictor: Predictor) -> None:
    """The same tensor as in training."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    data = encoded_png(Image.fromarray(pixels))
    seen: list[Tensor] = []

    def trunk(batch: Tensor) -> Tensor:
        seen.append(batch.clone())
        return batch.float()

    version = Served(Network((1, 0), trunk, first_pixel, Space("cosine"), FRAMING, 1), Numbers())
    predictor.predict(version, [Sent(0, None, data)], 1).result(SECONDS)

    expected = centre_view(decode(data, short_side=FRAMING.short_side), FRAMING)
    assert torch.equal(seen[0], expected[None])


@pytest.mark.parametrize("views", [2, 5])
def test_the_network_sees_the_views_that_are_asked_for(predictor: Predictor, views: int) -> None:
    """Those of one image after another; the answer is one for each image."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 40, 60, 3), dtype=np.uint8)
    encoded = [encoded_png(Image.fromarray(one)) for one in pixels]
    seen: list[Tensor] = []

    def trunk(batch: Tensor) -> Tensor:
        seen.extend(batch.clone())
        return batch.float()

    version = Served(Network((1, 0), trunk, first_pixel, Space("cosine"), FRAMING, 1), Numbers())
    uploads = [Sent(place, None, data) for place, data in enumerate(encoded)]
    answer = predictor.predict(version, uploads, 1, views).result(SECONDS)

    expected = torch.cat([fixed_views(Image.fromarray(one), FRAMING, views) for one in pixels])
    assert torch.equal(torch.stack(seen), expected)
    assert answer == expected[:, 0, 0, 0].float().view(2, views).tolist()


def test_every_view_needs_room_in_the_queue(predictor: Predictor, version: Served) -> None:
    """Twenty images may wait: four of five views do, and not one view more."""
    predictor.predict(version, sent(0, 1, 2, 3), 1, views=5)
    assert predictor.queued == 20

    with pytest.raises(Overloaded, match="20 images are waiting already"):
        predictor.predict(version, sent(4), 1)


def test_requests_for_the_same_version_are_searched_together(gate: Gate, version: Served) -> None:
    """One question, one search; another number of classes is another question."""
    predictor = Predictor(max_queued=20, max_pixels=MAX_PIXELS)
    first = predictor.predict(version, sent(1), 1)
    assert gate.entered.acquire(timeout=SECONDS)
    waiting = [predictor.predict(version, sent(n), top_k) for n, top_k in ((2, 1), (3, 1), (4, 2))]
    until(lambda: predictor._batcher._decoded == 3, "they are decoded")
    gate.open.set()

    assert [one.result(SECONDS) for one in (first, *waiting)] == [[1.0], [2.0], [3.0], [8.0]]
    assert sorted(version.classifier.sizes) == [1, 1, 2]
    predictor.close()


def test_a_full_queue_rejects_before_anything_is_decoded(predictor: Predictor, version: Served) -> None:
    """The image is not even looked at."""
    gone = predictor.predict(version, sent(*range(20)), 1)
    read: list[str] = []

    class Watched(Sent):
        def __getattribute__(self, name: str) -> Any:
            read.append(name)
            return super().__getattribute__(name)

    with pytest.raises(Overloaded, match="20 images are waiting already"):
        predictor.predict(version, [Watched(0, None, b"no image")], 1)

    gone.cancel()
    assert read == []


def test_bad_images_fail_the_request_and_give_back_its_room(predictor: Predictor, version: Served, gate: Gate) -> None:
    gate.open.set()
    bad = [*sent(1), Sent(1, "bad.png", b"no image")]

    error = predictor.predict(version, bad, 1).exception(SECONDS)

    assert isinstance(error, UnusableImages)
    assert [(one.index, one.filename) for one in error.images] == [(1, "bad.png")]
    assert predictor.queued == 0
    assert gate.batches == []


def test_cancelling_the_answer_gives_back_the_room(predictor: Predictor, version: Served, gate: Gate) -> None:
    """Of images that were decoded and wait to be computed."""
    predictor.predict(version, sent(1), 1)
    assert gate.entered.acquire(timeout=SECONDS)
    waiting = predictor.predict(version, sent(2, 3), 1)
    until(lambda: predictor._batcher._decoded == 2, "they are decoded")

    assert waiting.cancel()

    assert predictor.queued == 0
    gate.open.set()
    predictor.predict(version, sent(4), 1).result(SECONDS)
    assert gate.batches == [[1.0], [4.0]]


def test_cancelling_the_answer_stops_decoding(predictor: Predictor, version: Served, gate: Gate) -> None:
    """What has begun ends, and the rest is not begun."""
    gate.open.set()
    reached, go_on, read = threading.Event(), threading.Event(), []

    class Slow(Sent):
        def __getattribute__(self, name: str) -> Any:
            if name == "data":
                read.append(self.index)
                reached.set()
                assert go_on.wait(SECONDS)
            return super().__getattribute__(name)

    answer = predictor.predict(version, [Slow(number, None, png(0)) for number in range(20)], 1)
    assert reached.wait(SECONDS)
    assert answer.cancel()
    assert predictor.queued == 0
    go_on.set()

    assert predictor.predict(version, sent(4), 1).result(SECONDS) == [4.0]
    assert len(read) <= predictor.decoder.per_request
    assert gate.batches == [[4.0]]


def test_features_are_computed_for_teaching(predictor: Predictor, version: Served, gate: Gate) -> None:
    gate.open.set()

    features = predictor.features(version.network, images(3, 4)).result(SECONDS)

    assert torch.equal(torch.stack(features), torch.tensor([[3.0], [4.0]]))


def test_what_is_answered_is_let_go(version: Served, gate: Gate) -> None:
    """At once, not at the next garbage collection: the images of all requests since then would pile up."""
    gate.open.set()
    predictor = Predictor(max_queued=20, max_pixels=MAX_PIXELS, parallelism=for_cores(1))
    gc.disable()
    try:
        answer = predictor.predict(version, sent(1), 1)
        answer.result(SECONDS)
        left = weakref.ref(answer)
        del answer
        for number in range(8):  # all threads have moved on
            predictor.predict(version, sent(number), 1).result(SECONDS)
        assert left() is None
    finally:
        gc.enable()
        predictor.close()


def test_closing_rejects_what_comes_later(version: Served, gate: Gate) -> None:
    gate.open.set()
    predictor = Predictor(max_queued=20, max_pixels=MAX_PIXELS)
    assert predictor.alive
    predictor.close()

    assert not predictor.alive
    with pytest.raises(Overloaded, match="stopping"):
        predictor.predict(version, sent(1), 1)


def test_images_that_cannot_even_be_handed_to_a_thread_give_back_their_room(
    predictor: Predictor, version: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the queue would seem full for ever."""

    def refuse(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(predictor.decoder, "decode_uploads", refuse)

    with pytest.raises(RuntimeError):
        predictor.predict(version, sent(1, 2, 3), top_k=1)

    assert predictor.queued == 0


def test_an_idle_predictor_keeps_neither_images_nor_a_version(predictor: Predictor, gate: Gate) -> None:
    """A version of a hundred thousand classes takes half a gigabyte."""
    own = Served(Network((1, 0), gate, first_pixel, Space("cosine"), FRAMING, 1), Numbers())
    kept = weakref.ref(own.classifier)
    gate.open.set()
    assert len(predictor.predict(own, sent(1, 2), top_k=1).result(SECONDS)) == 2

    del own
    gc.collect()

    until(lambda: kept() is None, "nothing refers to the version any more")
