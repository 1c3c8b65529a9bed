"""What an image costs is told from its bytes: honest ones pass, bombs are known, and the telling itself is cheap."""

import contextlib
import io
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from core.errors import ImageError, ImageTooCostly
from core.image_cost import Cost, inspect
from core.pixels import FORMATS, MAX_PIXELS, decode
from tests import bombs

FUZZ = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:  # noqa: A002
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def seconds(work: Callable[[], Any]) -> float:
    """Of computing, in all threads of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


# Honest images


def with_metadata(jpeg: bytes, segments: int) -> bytes:
    """A panorama's or a portrait's depth, in extended XMP."""
    block = b"http://ns.adobe.com/xmp/extension/\0" + bytes(65_000)
    return jpeg[:2] + (b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block) * segments + jpeg[2:]


def in_chunks(png: bytes, size: int) -> bytes:
    """A screenshot of noise whose pixels are in chunks of so many bytes, as libpng writes them."""
    data = zlib.compress(np.random.default_rng(0).integers(0, 256, (900, 2_701), np.uint8).tobytes(), 1)
    start = png.index(b"IDAT") - 4
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    chunks = [struct.pack(">I", len(p)) + b"IDAT" + p + struct.pack(">I", zlib.crc32(b"IDAT" + p)) for p in parts]
    return png[:start] + b"".join(chunks) + png[-12:]


def animation(format: str) -> bytes:  # noqa: A002
    frames = [Image.new("RGB", (60, 40), (level, 0, 0)) for level in range(0, 250, 10)]
    return encoded(frames[0], format, save_all=True, append_images=frames[1:])


HONEST: dict[str, tuple[Callable[[], bytes], Cost]] = {
    "photograph": (lambda: encoded(noise(640, 480), "JPEG"), Cost.SMALL),
    "grey photograph": (lambda: encoded(noise(640, 480, "L"), "JPEG"), Cost.SMALL),
    "progressive photograph": (lambda: encoded(noise(640, 480), "JPEG", progressive=True), Cost.SMALL),
    "photograph of 12 megapixels": (lambda: encoded(Image.new("RGB", (4_032, 3_024)), "JPEG"), Cost.LARGE),
    "progressive one of 12": (lambda: encoded(Image.new("RGB", (4_032, 3_024)), "JPEG", progressive=True), Cost.LARGE),
    "photograph of 48": (lambda: encoded(Image.new("RGB", (8_064, 6_048)), "JPEG"), Cost.COSTLY),
    "progressive one of 50": (lambda: bombs.jpeg_scans(scans=20), Cost.COSTLY),
    "photograph with depth": (lambda: with_metadata(encoded(noise(640, 480), "JPEG"), 80), Cost.LARGE),
    "several photographs": (
        lambda: encoded(noise(64, 48), "MPO", save_all=True, append_images=[noise(64, 48)]),
        Cost.SMALL,
    ),
    "with a profile and EXIF": (
        lambda: encoded(
            noise(64, 48), "JPEG", icc_profile=bytes(600_000), exif=b"Exif\0\0II*\0\x08\0\0\0" + bytes(60_000)
        ),
        Cost.SMALL,
    ),
    "screenshot": (lambda: encoded(noise(800, 600), "PNG"), Cost.SMALL),
    "screenshot of 8 megapixels": (lambda: bombs.png_flat((3_840, 2_160), colour=2), Cost.LARGE),
    "screenshot of 33": (lambda: bombs.png_flat((7_680, 4_320), colour=2), Cost.COSTLY),
    "screenshot in small chunks": (
        lambda: in_chunks(encoded(Image.new("RGB", (900, 900)), "PNG"), 1_024),
        Cost.LARGE,
    ),
    "deep grey": (lambda: encoded(Image.fromarray(np.zeros((90, 90), np.uint16)), "PNG"), Cost.SMALL),
    "webp": (lambda: encoded(noise(600, 400), "WEBP"), Cost.SMALL),
    "clear webp": (lambda: encoded(noise(600, 400, "RGBA"), "WEBP", lossless=True, icc_profile=bytes(900)), Cost.SMALL),
    "animated webp": (lambda: animation("WEBP"), Cost.COSTLY),
    "animated gif": (lambda: animation("GIF"), Cost.SMALL),
    "bmp": (lambda: encoded(noise(600, 400), "BMP"), Cost.SMALL),
    "palette bmp": (lambda: encoded(noise(60, 40).quantize(16), "BMP"), Cost.SMALL),
    "tiff": (lambda: encoded(noise(600, 400), "TIFF", compression="tiff_lzw"), Cost.SMALL),
    "scanned pages": (lambda: animation("TIFF"), Cost.SMALL),
    "fax": (lambda: encoded(Image.new("1", (1_728, 2_200)), "TIFF", compression="group4"), Cost.COSTLY),
}


@pytest.mark.parametrize(("make", "cost"), HONEST.values(), ids=HONEST)
def test_an_honest_image_is_allowed_and_goes_where_it_belongs(make: Callable[[], bytes], cost: Cost) -> None:
    """None is refused, and what is judged cheap is."""
    data = make()

    found = inspect(data)

    found.require_affordable(MAX_PIXELS)
    assert found.cost is cost
    assert found.pixels == np.prod(Image.open(io.BytesIO(data), formats=FORMATS).size)


def test_judging_an_ordinary_photograph_costs_nothing_beside_decoding_it() -> None:
    """Every prediction is judged, so it takes less than a twentieth of the time."""
    data = encoded(noise(640, 480), "JPEG", quality=90)

    judging = seconds(lambda: [inspect(data) for _ in range(200)])
    decoding = seconds(lambda: [decode(data, short_side=256) for _ in range(20)])

    assert judging / 200 < decoding / 20 / 20


# Bombs


@pytest.fixture(scope="module")
def seconds_of_a_large_image() -> float:
    """Of decoding the largest that the threads decode, and a moment more."""
    photograph = encoded(Image.new("RGB", (4_000, 4_000)), "JPEG", quality=90)
    return seconds(lambda: decode(photograph, short_side=256)) + 0.05


@pytest.mark.parametrize("make", bombs.BOMBS.values(), ids=bombs.BOMBS)
def test_a_bomb_is_known_before_it_goes_off(make: Callable[[], bytes], seconds_of_a_large_image: float) -> None:
    """It is cheap after all, or refused, or goes where it can be stopped; and telling so is quick."""
    data = make()

    took = seconds(lambda: inspect(data))
    cost = inspect(data).cost

    assert took < seconds_of_a_large_image, "as long as the largest image that the threads decode"
    if cost is not Cost.COSTLY:
        assert seconds(lambda: _decoded(data)) < 5 * seconds_of_a_large_image


def _decoded(data: bytes) -> None:
    with contextlib.suppress(ImageError):
        decode(data, short_side=256)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("jpeg_scans", "49700000 pixels in 300 scans"),
        ("jpeg_empty_scans", "in 300 scans"),
        ("jpeg_arithmetic_scans", "in 300 scans"),
        ("jpeg_hidden_scans", "in 300 scans"),
        ("jpeg_sequential_scans", "in 300 scans"),
        ("jpeg_segments", "within its first 400 segments"),
        ("jpeg_exif_segments", "within its first 400 segments"),
        ("jpeg_padding", "other bytes between them"),
        ("jpeg_junk", "other bytes between them"),
        ("jpeg_tables", "bytes of tables"),
        ("jpeg_resources", "bytes of tables"),
        ("png_chunks", "more than 20000 chunks"),
        ("png_late_chunks", "more than 20000 chunks"),
        ("png_tiny_idats", "more than 20000 chunks"),
        ("gif_comment", "within its first 1000 blocks"),
        ("gif_extensions", "within its first 1000 blocks"),
        ("bmp_runs", "6250000 pixels in run lengths"),
        ("bmp_skips", "49700000 pixels in run lengths"),
        ("tiff_entries", "entries in its directory"),
        ("tiff_strips", "3000000 strips"),
    ],
)
def test_what_no_encoder_writes_is_refused_with_what_was_found(name: str, found: str) -> None:
    """And with what to do instead."""
    with pytest.raises(ImageTooCostly, match=rf"{found}.*save it"):
        inspect(bombs.BOMBS[name]()).require_affordable(MAX_PIXELS)


# Anything

VALID = {
    "JPEG": encoded(noise(40, 30), "JPEG"),
    "progressive": encoded(noise(40, 30), "JPEG", progressive=True),
    "PNG": encoded(noise(12, 9), "PNG"),
    "WEBP": encoded(noise(40, 30), "WEBP"),
    "clear": encoded(noise(40, 30, "RGBA"), "WEBP", lossless=True, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"),
    "BMP": encoded(noise(9, 7), "BMP"),
    "GIF": encoded(noise(9, 7).quantize(8), "GIF"),
    "TIFF": encoded(noise(9, 7), "TIFF", compression="tiff_lzw"),
}
SMALL_PIXELS = 10_000_000


@pytest.mark.parametrize("name", VALID)
@FUZZ
@given(data=st.data())
def test_what_is_judged_small_is_small_for_the_decoder_too(name: str, data: st.DataObject) -> None:
    """However the bytes are changed, the judge never sees fewer pixels than the decoder would make."""
    damaged = bytearray(VALID[name])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, min(len(damaged), 200)))
        damaged[start : start + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))

    found = inspect(bytes(damaged))
    try:
        image = Image.open(io.BytesIO(bytes(damaged)), formats=FORMATS)
    except Exception:
        return

    if found.cost is Cost.SMALL:
        assert image.width * image.height * found.scans <= SMALL_PIXELS


@FUZZ
@given(prefix=st.sampled_from([b"", *(data[:12] for data in VALID.values())]), noise=st.binary(max_size=200))
def test_judging_raises_nothing(prefix: bytes, noise: bytes) -> None:
    """Whatever the bytes."""
    assert inspect(prefix + noise).cost in Cost
