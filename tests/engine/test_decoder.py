"""Images of requests are decoded in parallel and in order, and those of one request do not delay those of another."""

import io
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import torch
from PIL import Image
from torch import Tensor

from core.images import MAX_PIXELS
from engine.decoder import Decoder
from engine.decoder_process import DecoderProcess
from engine.decoding import DecodedImage, EncodedImage, decode_now
from engine.errors import BadImage, Overloaded, UnusableImages
from tests import bombs
from tests.waiting import until

SECONDS = 20.0


@dataclass(frozen=True)
class Sent:
    index: int
    filename: str | None
    data: bytes


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (2, 2), value).save(buffer, "PNG")
    return buffer.getvalue()


def uploads(count: int) -> list[Sent]:
    return [Sent(place, f"{place}.png", png(place)) for place in range(count)]


def level(image: Image.Image) -> Tensor:
    """The grey level of the first pixel."""
    return torch.tensor(image.getpixel((0, 0))[0])  # type: ignore[index]


def load(upload: Sent) -> EncodedImage:
    return EncodedImage(upload.data, 64, MAX_PIXELS, level)


def levels(future: "Future[list[DecodedImage]]") -> list[int]:
    return [int(image.view) for image in future.result(SECONDS)]


@pytest.fixture
def process() -> Iterator[DecoderProcess]:
    made = DecoderProcess()
    yield made
    made.close()


@pytest.fixture
def decoder(process: DecoderProcess) -> Decoder:
    return Decoder(process)


@pytest.fixture
def many(decoder: Decoder) -> int:
    return 5 * decoder.per_request + 1


@pytest.mark.parametrize("count", [0, 1, 2, 11])
def test_results_come_in_order(decoder: Decoder, count: int) -> None:
    """However many there are."""
    assert levels(decoder.decode_uploads(uploads(count), load)) == list(range(count))


def test_every_bad_image_is_named(decoder: Decoder, many: int) -> None:
    """By its index, its file name and what is wrong with it; the good ones between them are not used."""
    sent = [Sent(place, f"{place}.png", png(0) if place % 2 == 0 else b"no image") for place in range(many)]

    error = decoder.decode_uploads(sent, load).exception(SECONDS)

    assert isinstance(error, UnusableImages)
    assert [(bad.index, bad.filename) for bad in error.images] == [(n, f"{n}.png") for n in range(1, many, 2)]
    assert error.total == many
    assert str(error).startswith(f"{many // 2} of {many} images cannot be used, and nothing was done with the others")


def test_the_error_of_a_stored_image_is_passed_on_as_it_is(decoder: Decoder) -> None:
    """The caller has not sent it."""
    error = decoder.decode([b"no image"], lambda data: EncodedImage(data, 4, MAX_PIXELS, level)).exception(SECONDS)

    assert type(error).__name__ == "NotAnImage"


def test_another_error_fails_the_request_and_ends_the_work(decoder: Decoder) -> None:
    """Nothing more of the request is begun."""
    begun: list[int] = []

    def fail(number: int) -> EncodedImage:
        begun.append(number)
        raise ZeroDivisionError(f"at {number}")

    with pytest.raises(ZeroDivisionError, match="at "):
        decoder.decode(range(100), fail).result(SECONDS)
    assert len(begun) <= decoder.per_request


def test_nothing_is_done_for_a_caller_that_has_left(decoder: Decoder, many: int) -> None:
    """What has begun ends, and the rest is not begun."""
    begun, may_end = threading.Semaphore(0), threading.Event()
    seen: list[int] = []

    def slow(image: Image.Image) -> Tensor:
        seen.append(int(level(image)))
        begun.release()
        assert may_end.wait(SECONDS)
        return level(image)

    future = decoder.decode_uploads(uploads(many), lambda upload: EncodedImage(upload.data, 4, MAX_PIXELS, slow))
    for _ in range(decoder.per_request):
        assert begun.acquire(timeout=SECONDS)
    assert future.cancel()
    may_end.set()

    assert levels(decoder.decode_uploads(uploads(many), load)) == list(range(many)), "the threads are free again"
    assert sorted(seen) == list(range(decoder.per_request))


def test_one_image_does_not_wait_for_sixty_four(decoder: Decoder) -> None:
    """Of a large request no more images wait for a thread than there are threads."""
    order: list[str] = []
    may_begin = threading.Event()

    def note(name: str) -> EncodedImage:
        assert may_begin.wait(SECONDS)
        order.append(name)
        return EncodedImage(png(0), 4, MAX_PIXELS, level)

    large, small = decoder.decode(["large"] * 64, note), decoder.decode(["small"], note)
    may_begin.set()
    large.result(SECONDS), small.result(SECONDS)

    assert order.index("small") <= 2 * decoder.per_request


# Large and costly images


def costly() -> bytes:
    """An honest image that is too large for the threads."""
    return bombs.png_flat((4_000, 4_000))


def slow_image() -> bytes:
    """Accepted, and then stopped: seconds of Python in a short file."""
    return bombs.jpeg_padding(1_900_000)


def children() -> list[psutil.Process]:
    """Those that decode; the servers of other tests are children too."""
    return [one for one in psutil.Process().children() if "engine.decoder_main" in one.cmdline()]


def decode_one(decoder: Decoder, data: bytes) -> "Future[list[DecodedImage]]":
    return decoder.decode_uploads([Sent(0, None, data)], load)


def test_a_large_image_is_decoded_as_well(decoder: Decoder) -> None:
    """In threads of its own."""
    assert levels(decode_one(decoder, png(7) + bytes(2_100_000))) == [7]


def test_small_images_are_decoded_while_costly_ones_wait(decoder: Decoder, many: int) -> None:
    """Costly images delay nobody else's."""
    bomb = slow_image()
    waiting = [decode_one(decoder, bomb) for _ in range(3)]
    until(children, "a process decodes the first")

    found = [levels(decoder.decode_uploads(uploads(many), load)) for _ in range(5)]

    assert found == [list(range(many))] * 5
    assert not any(future.done() for future in waiting)
    for future in waiting:
        future.cancel()


def test_costly_images_beyond_the_bound_are_rejected_at_once(decoder: Decoder) -> None:
    """While the others go on."""
    bomb = slow_image()
    futures = [decode_one(decoder, bomb) for _ in range(12)]

    until(lambda: sum(future.done() for future in futures) >= 6, "half of them have an answer")

    rejected = [future.exception() for future in futures if future.done()]
    assert all(isinstance(error, Overloaded) for error in rejected)
    for future in futures:
        future.cancel()


def test_the_process_is_killed_when_the_caller_leaves(decoder: Decoder) -> None:
    """A costly image that nobody waits for takes no more time."""
    future = decode_one(decoder, slow_image())
    until(lambda: len(children()) == 1, "a process decodes it")  # one of an earlier test may take a moment to end
    (process,) = children()

    future.cancel()

    until(lambda: not process.is_running(), "the process is gone")
    assert levels(decode_one(decoder, costly())) == [255], "a new one is started"


def test_an_image_that_is_too_costly_ends_the_request_at_once(decoder: Decoder) -> None:
    """The first of many is named, and the others are not begun."""
    bomb = bombs.jpeg_scans(scans=300)
    begun: list[int] = []

    def counted(upload: Sent) -> EncodedImage:
        begun.append(upload.index)
        return load(upload)

    error = decoder.decode_uploads([Sent(place, None, bomb) for place in range(64)], counted).exception(SECONDS)

    assert isinstance(error, UnusableImages)
    (bad,) = error.images
    assert isinstance(bad, BadImage)
    assert "300 scans" in bad.reason
    assert len(begun) <= decoder.per_request
    assert children() == []


def test_the_costly_images_of_one_request_have_a_time_limit_together(process: DecoderProcess) -> None:
    """Many that are each allowed are not allowed for ever."""
    decoder = Decoder(process, max_costly_seconds=0.0)

    error = decoder.decode_uploads([Sent(place, None, costly()) for place in range(4)], load).exception(SECONDS)

    assert "take over 0 seconds" in str(error)


def test_costly_images_that_are_broken_count_too(process: DecoderProcess) -> None:
    """Else a request of broken ones could hold the lane of costly images for as long as it is waited for."""
    decoder = Decoder(process, max_costly_seconds=0.0)
    broken = costly()[: len(costly()) // 2]

    error = decoder.decode_uploads([Sent(place, None, broken) for place in range(4)], load).exception(SECONDS)

    assert "take over 0 seconds" in str(error)


def test_a_thread_that_cannot_be_started_is_an_error_of_the_request(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails at once, and nobody waits for an image that no thread decodes."""
    plain, caller = decoder.small.submit, threading.current_thread()

    def submit(*work: Any) -> Any:
        if threading.current_thread() is not caller:  # for the images that follow the first ones
            raise RuntimeError("can't start new thread")
        return plain(*work)

    monkeypatch.setattr(decoder.small, "submit", submit)

    error = decoder.decode_uploads([Sent(place, None, png(1)) for place in range(20)], load).exception(SECONDS)

    assert isinstance(error, RuntimeError)


def test_a_small_form_of_a_costly_image_is_kept_where_it_is_asked_for(decoder: Decoder) -> None:
    """So that it need not be decoded again. An ordinary image is decoded as quickly as any form of it."""

    def kept(data: bytes) -> EncodedImage:
        return EncodedImage(data, 64, MAX_PIXELS, level, keep_small_form=True)

    small, large = decoder.decode([png(3), costly()], kept).result(SECONDS)
    (plain,) = decode_one(decoder, costly()).result(SECONDS)

    assert small.small_form is None
    assert plain.small_form is None
    assert large.small_form is not None
    assert min(Image.open(io.BytesIO(large.small_form)).size) >= 64


# Without a request


@pytest.mark.parametrize("data", [png(9), bombs.png_flat((4_000, 4_000))], ids=["small", "costly"])
def test_an_image_may_be_decoded_in_the_calling_thread(data: bytes) -> None:
    assert int(decode_now(EncodedImage(data, 64, MAX_PIXELS, level)).view) in {9, 255}
