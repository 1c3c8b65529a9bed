"""Images decoded off the event loop, in lanes by what they cost: a slow one never holds up the small ones of others.

Small images go through as many threads as there are cores, large ones through as many beside them, and costly ones one
at a time through a process of their own, which is killed when nobody waits for it. What may wait for the slow lanes is
bounded. Each uploaded image is checked by itself; one that is bad is named, and then nothing is done with the others.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from PIL import Image
from torch import Tensor

from core.errors import ImageError, ImageTooCostly
from core.image_cost import Cost, inspect
from core.images import Framing, decode
from engine.cores import usable_cores
from engine.decoder_process import SECONDS, STORED_SECONDS
from engine.errors import BadImage, Overloaded, UnusableImages
from learners.stored_images import DECODER, STORED, own_views, sharp_side, small_form
from service.uploads import Upload
from store.classes import StoredImage

Thing = TypeVar("Thing")
Result = TypeVar("Result")
Waiting = Callable[[], bool]  # whether anybody still waits

CORES = usable_cores()
PATIENCE = 20.0  # seconds that an image waits for a slow lane
MOST_SECONDS = 60.0  # that the costly images of one request may take together


@dataclass(frozen=True)
class Look:
    """What to make of an image: how it is decoded, and what is then seen in it, given its bytes."""

    short_side: int
    max_pixels: int
    see: Callable[[Image.Image, bytes], Tensor]
    trusted: bool = False  # it was judged when it came, by the limits of that time

    def decoded(self, data: bytes) -> Image.Image:
        return decode(data, short_side=self.short_side, max_pixels=self.max_pixels)

    def decoded_apart(self, data: bytes, wanted: Waiting) -> Image.Image:
        return DECODER.decode(
            data,
            short_side=self.short_side,
            max_pixels=self.max_pixels,
            seconds=STORED_SECONDS if self.trusted else SECONDS,
            abandoned=lambda: not wanted(),
        )


@dataclass(frozen=True)
class Seen:
    """What was seen in an image, and a small form of it where decoding it again would be costly."""

    view: Tensor
    scaled: bytes | None = None


async def seen_in(uploads: Sequence[Upload], look: Look) -> list[Seen]:
    """What `look` sees in every image, to be stored with it."""
    return _usable(await each(_looking(look, len(uploads), keeps=True), uploads))


async def seen_again(
    load: Callable[[int], StoredImage], keys: Sequence[int], framing: Framing, augmented: int
) -> list[Tensor]:
    """The views of stored images, as when they were taught; each is loaded when it is its turn."""

    def one(key: int) -> "Seen | _Later[Seen]":
        picture = load(key)
        look = Look(
            sharp_side(framing),
            STORED,
            lambda image, _: own_views(image, framing, picture.sha256, augmented),
            trusted=True,
        )
        return _seen(look, picture.scaled or picture.data)

    return [seen.view for seen in await each(one, keys)]


def hand_over(uploads: Sequence[Upload], look: Look, to: Callable[[list[Tensor]], None], answer: "Future[Any]") -> None:
    """Have `to` called with what `look` sees in every image, in a thread: the event loop is not woken for it.

    Where that cannot be, the answer says why; when nobody waits for the answer any more, no more is done.
    """

    def then(found: "list[Seen | BadImage]") -> None:
        to([seen.view for seen in _usable(found)])

    _Round(_looking(look, len(uploads)), uploads, then, answer).begin()


async def each(work: "Callable[[Thing], Result | _Later[Result]]", things: Sequence[Thing]) -> list[Result]:
    """`work` done on every one, side by side, in order."""
    if not things:
        return []
    answer: Future[list[Result]] = Future()

    def tell(results: list[Result]) -> None:
        with suppress(InvalidStateError):  # nobody waits any more
            answer.set_result(results)

    _Round(work, things, tell, answer).begin()
    return await asyncio.wrap_future(answer)


def _seen(look: Look, data: bytes, *, keeps: bool = False) -> "Seen | _Later[Seen]":
    """What is seen in a small image; one that is not waits for its lane."""
    found = inspect(data)
    if not look.trusted:
        found.require_affordable(look.max_pixels)
    if found.cost is Cost.SMALL:
        return Seen(look.see(look.decoded(data), data))
    if found.cost is Cost.LARGE:
        return _Later(_LARGE, len(data), lambda _: Seen(look.see(look.decoded(data), data)))

    def apart(wanted: Waiting) -> Seen:
        image = look.decoded_apart(data, wanted)
        return Seen(look.see(image, data), small_form(image) if keeps else None)

    return _Later(_COSTLY, len(data), apart, bounded=not look.trusted)


def _looking(
    look: Look, total: int, *, keeps: bool = False
) -> "Callable[[Upload], Seen | BadImage | _Later[Seen | BadImage]]":
    """As `_seen`, of uploads; a bad one is a problem, and one that is too costly ends the request at once."""

    def told(upload: Upload, work: Callable[[], Result]) -> Result | BadImage:
        try:
            return work()
        except ImageError as error:
            problem = BadImage(upload.index, upload.filename, str(error))
            if isinstance(error, ImageTooCostly):
                raise UnusableImages([problem], total) from None
            return problem

    def one(upload: Upload) -> "Seen | BadImage | _Later[Seen | BadImage]":
        found = told(upload, lambda: _seen(look, upload.data, keeps=keeps))
        if not isinstance(found, _Later):
            return found
        step = found.step
        return _Later(found.lane, found.size, lambda wanted: told(upload, lambda: step(wanted)))

    return one


def _usable(found: "Sequence[Seen | BadImage]") -> list[Seen]:
    bad = [one for one in found if isinstance(one, BadImage)]
    if bad:
        raise UnusableImages(bad, len(found))
    return [one for one in found if isinstance(one, Seen)]


class _Lane:
    """Threads, and how many images and bytes may be with them; the first may be of any size."""

    def __init__(self, name: str, threads: int, most_images: int, most_bytes: int) -> None:
        self._threads = ThreadPoolExecutor(threads, f"decoding {name}")
        self._name, self._most_images, self._most_bytes = name, most_images, most_bytes
        self._images = self._bytes = 0
        self._counting = threading.Lock()

    def submit(self, work: Callable[[], None], size: int) -> None:
        with self._counting:
            full = self._images >= self._most_images or self._bytes + size > self._most_bytes
            if self._images and full:
                raise Overloaded(f"{self._images} {self._name} images wait to be decoded already")
            self._images += 1
            self._bytes += size
        self._threads.submit(self._run, work, size)

    def _run(self, work: Callable[[], None], size: int) -> None:
        try:
            work()
        finally:
            with self._counting:
                self._images -= 1
                self._bytes -= size


_threads = ThreadPoolExecutor(CORES, "decoding")  # more than cores would only get in each other's way
_LARGE = _Lane("large", CORES, most_images=64, most_bytes=128_000_000)
_COSTLY = _Lane("costly", 1, most_images=6, most_bytes=128_000_000)


@dataclass(frozen=True)
class _Later(Generic[Result]):
    """The rest of a piece of work, for another lane."""

    lane: _Lane
    size: int  # bytes that it holds
    step: Callable[[Waiting], Result]
    bounded: bool = True  # whether it counts for how long a request may take


@dataclass(eq=False)
class _Round(Generic[Thing, Result]):
    """The images of one request on their way through the threads.

    No more of them wait for a thread than there are threads: the single image of another comes between them.
    """

    work: Callable[[Thing], "Result | _Later[Result]"]
    things: Sequence[Thing]
    then: Callable[[list[Result]], None]
    answer: "Future[Any]"
    results: dict[int, Result] = field(default_factory=dict)  # by place
    done: Iterator[int] = field(default_factory=lambda: count(1))
    seconds: float = 0.0  # that costly ones have taken

    def begin(self) -> None:
        for place in range(min(CORES, len(self.things))):
            _threads.submit(self._one, place)

    def _one(self, place: int) -> None:
        self._do(place, lambda: self.work(self.things[place]))

    def _do(self, place: int, step: "Callable[[], Result | _Later[Result]]") -> None:
        if self.answer.done():
            return
        try:
            found = step()
            if isinstance(found, _Later):
                resume = partial(self._resumed, found, time.monotonic())
                found.lane.submit(partial(self._do, place, resume), found.size)
                return
            self.results[place] = found
            if next(self.done) == len(self.things):  # which is true in one thread alone
                self.then([self.results[at] for at in range(len(self.things))])
            elif place + CORES < len(self.things):
                _threads.submit(self._one, place + CORES)
        except Exception as error:
            with suppress(InvalidStateError):
                self.answer.set_exception(error)

    def _resumed(self, later: "_Later[Result]", since: float) -> Result:
        start = time.monotonic()
        if start - since > PATIENCE:
            raise Overloaded(f"the image has waited {PATIENCE:g} seconds to be decoded")
        if self.seconds > MOST_SECONDS and later.bounded:
            raise ImageTooCostly(f"the costly images of this request take over {MOST_SECONDS:g} seconds; send fewer")
        result = later.step(lambda: not self.answer.done())
        if later.lane is _COSTLY:
            self.seconds += time.monotonic() - start  # by one thread alone
        return result
