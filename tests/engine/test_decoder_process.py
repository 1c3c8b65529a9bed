"""Costly images in a process of their own: the same pixels, the same errors, and an end to whatever takes too long."""

import contextlib
import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from core.errors import BrokenImage, ImageTooCostly, ImageTooLarge, NotAnImage
from core.pixels import decode
from engine.decoder_process import Abandoned, DecoderProcess
from tests import bombs
from tests.waiting import until

MAX_PIXELS = 50_000_000


@pytest.fixture
def decoder() -> Iterator[DecoderProcess]:
    decoder = DecoderProcess()
    yield decoder
    decoder.close()


def noise(width: int = 1_300, height: int = 1_100) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 4), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def pid_of(decoder: DecoderProcess) -> int:
    assert decoder._child is not None
    return decoder._child.pid


def test_the_pixels_are_those_of_a_decoder_in_this_process(decoder: DecoderProcess) -> None:
    """Whole, and shrunk to the side asked for; by one process."""
    data, pids = noise(), set()

    for short_side in (100, 2_000):
        image = decoder.decode(data, short_side=short_side, max_pixels=MAX_PIXELS)
        pids.add(pid_of(decoder))

        assert image == decode(data, short_side=short_side)
    assert len(pids) == 1


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"no image", NotAnImage, "not a known image format"),
        (noise()[:5_000], BrokenImage, "begins as PNG"),
        (bombs.bmp_claim((7_100, 7_100)), ImageTooLarge, "at most 50000000 pixels"),
    ],
)
def test_errors_come_as_they_are(decoder: DecoderProcess, data: bytes, error: type[Exception], message: str) -> None:
    """With the same words, and the process goes on."""
    with pytest.raises(error, match=message):
        decoder.decode(data, short_side=100, max_pixels=MAX_PIXELS)

    assert psutil.Process(pid_of(decoder)).is_running()


def test_an_image_that_takes_too_long_is_stopped(decoder: DecoderProcess) -> None:
    """By the kernel, after this many seconds of CPU time; the next image is decoded."""
    with pytest.raises(ImageTooCostly, match="more than 1 seconds to decode"):
        decoder.decode(bombs.jpeg_padding(30_000_000), short_side=100, max_pixels=MAX_PIXELS, seconds=1)

    assert decoder.decode(noise(9, 9), short_side=100, max_pixels=MAX_PIXELS).size == (9, 9)


def test_an_image_that_takes_too_much_memory_is_refused(decoder: DecoderProcess) -> None:
    """The process has so much of it and no more."""
    with pytest.raises(ImageTooCostly, match="needs more memory"):
        decoder.decode(bombs.webp_canvas(), short_side=100, max_pixels=MAX_PIXELS)

    assert psutil.Process(pid_of(decoder)).memory_info().rss < 200_000_000, "it is given back"


@pytest.mark.parametrize("name", ["png_deep", "png_deep_grey", "tiff_float", "webp_canvas", "bmp_flat", "jpeg_twenty"])
def test_fifty_megapixels_take_a_bounded_memory(decoder: DecoderProcess, name: str) -> None:
    """Decoded or refused, in every depth and format."""
    data = bombs.jpeg_scans(scans=20) if name == "jpeg_twenty" else bombs.BOMBS[name]()

    with contextlib.suppress(ImageTooCostly):
        assert min(decoder.decode(data, short_side=512, max_pixels=MAX_PIXELS).size) >= 512

    status = Path(f"/proc/{pid_of(decoder)}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    assert peak < 850_000_000


def test_the_process_is_killed_when_nobody_waits(decoder: DecoderProcess) -> None:
    """It is asked many times a second whether anybody still waits."""
    asked: list[int] = []

    def abandoned() -> bool:
        asked.append(pid_of(decoder))
        return len(asked) > 3

    with pytest.raises(Abandoned):
        decoder.decode(bombs.jpeg_padding(30_000_000), short_side=100, max_pixels=MAX_PIXELS, abandoned=abandoned)

    assert not psutil.pid_exists(asked[0])


def test_a_process_that_was_killed_while_idle_is_replaced(decoder: DecoderProcess) -> None:
    """The next image is not to blame."""
    decoder.decode(noise(9, 9), short_side=100, max_pixels=MAX_PIXELS)
    process = psutil.Process(pid_of(decoder))
    process.kill()
    until(lambda: process.status() == psutil.STATUS_ZOMBIE, "the process is dead")

    assert decoder.decode(noise(9, 9), short_side=100, max_pixels=MAX_PIXELS).size == (9, 9)


def test_an_idle_process_ends_and_another_is_started() -> None:
    """It takes no memory when there is nothing to do."""
    decoder = DecoderProcess(idle_seconds=0.1)
    decoder.decode(noise(9, 9), short_side=100, max_pixels=MAX_PIXELS)
    process = psutil.Process(pid_of(decoder))
    until(lambda: process.status() == psutil.STATUS_ZOMBIE, "the process has ended")

    assert decoder.decode(noise(9, 9), short_side=100, max_pixels=MAX_PIXELS).size == (9, 9)
    decoder.close()


PARENT = """
from engine.decoder_process import DecoderProcess
from tests import bombs
decoder = DecoderProcess()
decoder.decode(bombs.png_flat((9, 9)), short_side=100, max_pixels=1000)
print(decoder._child.pid, flush=True)
input()
"""


def test_the_process_does_not_outlive_the_one_that_started_it() -> None:
    """Even when that is killed without a word."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)

    with parent:
        parent.send_signal(signal.SIGKILL)

    until(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE,
        "the process is gone too",
    )


def test_the_process_is_small() -> None:
    """It holds no torch."""
    found = subprocess.run(
        [sys.executable, "-c", "import engine.decoder_main, sys; print('torch' in sys.modules)"],
        capture_output=True,
        check=True,
    )

    assert found.stdout.strip() == b"False"
