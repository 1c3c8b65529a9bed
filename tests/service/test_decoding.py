"""Images go through the decoding threads side by side, in order, and nobody's hold up another's."""

import asyncio
import io
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch import Tensor

from core.images import MAX_PIXELS, Framing
from engine import decoding
from engine.batching import Overloaded
from engine.decoding import CORES, Look, each, hand_over, seen_again, seen_in
from learners.stored_images import DECODER, own_views, sharp_side
from service.problems import Problem
from service.uploads import Upload
from store.classes import StoredImage, digest
from tests import bombs
from tests.waiting import until

SECONDS = 20.0
MANY = 5 * CORES + 1
FRAMING = Framing(56)


def image(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (2, 2), value).save(buffer, "PNG")
    return buffer.getvalue()


def uploads(count: int) -> list[Upload]:
    return [Upload(place, f"{place}.png", image(place)) for place in range(count)]


def level(picture: Image.Image, _: bytes) -> Tensor:
    """The grey level of the first pixel."""
    return torch.tensor(picture.getpixel((0, 0))[0])  # type: ignore[index]


LOOK = Look(FRAMING.short_side, MAX_PIXELS, level)


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    yield
    DECODER.close()


def handed_over(sent: list[Upload], look: Look = LOOK) -> "Future[list[int]]":
    answer: Future[list[int]] = Future()
    hand_over(sent, look, lambda found: answer.set_result([int(one) for one in found]), answer)
    return answer


@pytest.mark.parametrize("number", [0, 1, CORES, MANY])
def test_results_come_in_the_order_of_the_things(number: int) -> None:
    """However many there are."""
    assert asyncio.run(each(lambda thing: 10 * thing, range(number))) == [10 * place for place in range(number)]


@pytest.mark.parametrize("number", [1, MANY])
def test_what_is_handed_over_comes_whole_and_once(number: int) -> None:
    """A second call would find the answer given."""
    assert handed_over(uploads(number)).result(SECONDS) == list(range(number))


def test_every_bad_image_is_named_and_nothing_handed_over() -> None:
    """The good ones between them are not seen."""
    sent = [Upload(place, None, image(0) if place % 2 == 0 else b"no image") for place in range(MANY)]

    problem = handed_over(sent).exception(SECONDS)

    assert isinstance(problem, Problem)
    assert [one.index for one in problem.images] == list(range(1, MANY, 2))


def test_a_fault_is_the_answer_and_ends_the_work() -> None:
    """Nothing more of the request is begun."""
    seen: list[int] = []

    def work(thing: int) -> int:
        seen.append(thing)
        raise ZeroDivisionError(f"at {thing}")

    with pytest.raises(ZeroDivisionError, match="at "):
        asyncio.run(each(work, range(100)))
    assert len(seen) <= CORES


def test_whoever_takes_them_may_refuse() -> None:
    """What it raises is the answer."""
    answer: Future[Any] = Future()

    def refuse(_: list[Tensor]) -> None:
        raise OSError("no room")

    hand_over(uploads(2), LOOK, refuse, answer)

    assert isinstance(answer.exception(SECONDS), OSError)


def test_nothing_is_done_for_who_has_gone_away() -> None:
    """What has begun ends, and the rest is not begun."""
    began, may_end = threading.Semaphore(0), threading.Event()
    seen: list[int] = []

    def slow(picture: Image.Image, data: bytes) -> Tensor:
        found = level(picture, data)
        seen.append(int(found))
        began.release()
        assert may_end.wait(SECONDS)
        return found

    answer: Future[Any] = Future()
    hand_over(uploads(MANY), Look(4, MAX_PIXELS, slow), lambda _: pytest.fail("handed over"), answer)
    for _ in range(CORES):
        assert began.acquire(timeout=SECONDS)
    assert answer.cancel()
    may_end.set()

    assert asyncio.run(each(lambda thing: thing, range(MANY))) == list(range(MANY)), "the threads are free again"
    assert sorted(seen) == list(range(CORES))


def test_one_image_does_not_wait_for_sixty_four() -> None:
    """Of a large request no more wait for a thread than there are threads."""
    order: list[str] = []
    may_begin = threading.Event()

    def noted(name: str) -> str:
        assert may_begin.wait(SECONDS)
        order.append(name)
        return name

    async def both() -> None:
        large = asyncio.create_task(each(noted, ["large"] * 64))
        await asyncio.sleep(0)
        small = asyncio.create_task(each(noted, ["small"]))
        await asyncio.sleep(0)
        may_begin.set()
        await asyncio.gather(large, small)

    asyncio.run(both())

    assert order.index("small") <= 2 * CORES


# Costly images


def costly(size: tuple[int, int] = (4_000, 4_000)) -> bytes:
    """An honest image that is too large for the threads."""
    return bombs.png_flat(size)


def slow() -> bytes:
    """Accepted, and then stopped: seconds of Python in a short file."""
    return bombs.jpeg_padding(1_900_000)


def children() -> list[psutil.Process]:
    """Those that decode; the servers of other tests are children too."""
    return [one for one in psutil.Process().children() if "engine.decoder_main" in one.cmdline()]


def test_small_images_are_answered_while_costly_ones_wait() -> None:
    """As many costly ones as may wait hold up nobody else's image."""
    bomb = slow()
    waiting = [handed_over([Upload(0, None, bomb)]) for _ in range(3)]
    until(children, "a process decodes the first")

    found = [handed_over(uploads(MANY)).result(SECONDS) for _ in range(5)]

    assert found == [list(range(MANY))] * 5
    assert not any(answer.done() for answer in waiting)
    for answer in waiting:
        answer.cancel()


def test_costly_images_beyond_the_bound_are_refused_at_once() -> None:
    """Whoever comes when the lane is full is told to come again, and the others go on."""
    bomb = slow()
    answers = [handed_over([Upload(0, None, bomb)]) for _ in range(12)]

    until(lambda: sum(answer.done() for answer in answers) >= 6, "half of them are answered")

    refused = [answer.exception() for answer in answers if answer.done()]
    assert all(isinstance(error, Overloaded) for error in refused)
    for answer in answers:
        answer.cancel()


def test_the_process_is_killed_when_the_caller_leaves() -> None:
    """A costly image that nobody waits for takes no more time of anybody."""
    answer = handed_over([Upload(0, None, slow())])
    until(children, "a process decodes it")
    (process,) = children()

    answer.cancel()

    until(lambda: not process.is_running(), "the process is gone")
    assert handed_over([Upload(0, None, costly())]).result(SECONDS) == [255], "a new one is started"


def test_an_image_that_is_too_costly_ends_the_request_at_once() -> None:
    """The first of many is named, and the others are not even begun."""
    bomb = bombs.jpeg_scans(scans=300)
    start = time.process_time()

    problem = handed_over([Upload(place, None, bomb) for place in range(64)]).exception(SECONDS)

    assert isinstance(problem, Problem)
    assert problem.status == 422
    assert "300 scans" in problem.images[0].reason
    assert time.process_time() - start < 1
    assert children() == []


def test_the_costly_images_of_one_request_have_a_time_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that are each allowed are not allowed for ever."""
    monkeypatch.setattr(decoding, "MOST_SECONDS", 0.0)

    error = handed_over([Upload(place, None, costly()) for place in range(4)]).exception(SECONDS)

    assert "take over 0 seconds" in str(error)


def see(augmented: int, picture: Image.Image, data: bytes) -> Tensor:
    return own_views(picture, FRAMING, digest(data), augmented)


def painted(width: int, height: int, name: str, **options: Any) -> bytes:
    """A picture of waves, no two parts of which are alike."""
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    waves = [x * 255 // width + 0 * y, (x * y // 97) % 256, y * 255 // height + 0 * x]
    buffer = io.BytesIO()
    Image.fromarray(np.stack(waves, axis=2).astype(np.uint8)).save(buffer, name, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        painted(3_301, 2_903, "PNG", compress_level=1),
        painted(2_903, 3_301, "TIFF", compression="tiff_lzw"),
        painted(2_203, 2_001, "WEBP", quality=50, method=0),
        painted(170_000, 60, "PNG", compress_level=1),
    ],
    ids=["png", "tiff", "webp", "strip"],
)
def test_a_stored_image_shows_the_same_views_from_its_small_form(data: bytes) -> None:
    """Bit for bit, whether it was kept with a small form or comes from the time before there were any."""
    look = Look(sharp_side(FRAMING), MAX_PIXELS, partial(see, 3))
    (seen,) = asyncio.run(seen_in([Upload(0, None, data)], look))
    assert seen.scaled is not None

    pictures = [StoredImage(1, digest(data), data, form) for form in (seen.scaled, None)]
    again = asyncio.run(seen_again(pictures.__getitem__, range(2), FRAMING, 3))

    assert len(seen.scaled) < 1_500_000
    assert [torch.equal(seen.view, view) for view in again] == [True, True]


def test_an_ordinary_image_is_kept_as_it_is() -> None:
    """Its own bytes are as quickly decoded as any other form would be."""
    (seen,) = asyncio.run(seen_in(uploads(1), Look(4, MAX_PIXELS, level)))

    assert seen.scaled is None
