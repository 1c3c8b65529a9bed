"""What becomes of an image's bytes: every kind of pixel, every kind of damage, every view."""

import io
import struct
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, ImageOps

from core.errors import (
    BrokenImage,
    EmptyImage,
    ImageError,
    ImageTooLarge,
    NotAnImage,
    UnsupportedFormat,
    ZeroSizeImage,
)
from core.images import (
    FORMATS,
    MAX_PIXELS,
    MAX_VIEWS,
    Framing,
    augmented_view,
    centre_view,
    decode,
    fixed_views,
    views,
)

WHITE = (255, 255, 255)
FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:  # noqa: A002
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def scene(width: int = 40, height: int = 30, seed: int = 0) -> Image.Image:
    """A smooth colour image with no symmetry, so that a turn or a mirror shows."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def ramp(width: int, height: int) -> Image.Image:
    """Red grows from left to right, green from top to bottom."""
    red = np.broadcast_to(np.linspace(0, 255, width), (height, width))
    green = np.broadcast_to(np.linspace(0, 255, height)[:, None], (height, width))
    return Image.fromarray(np.stack([red, green, np.zeros_like(red)], axis=2).round().astype(np.uint8))


def oriented(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, colour: int, *chunks: bytes) -> bytes:
    """A PNG made by hand, for headers and depths that Pillow does not write."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


def row(samples: bytes) -> bytes:
    return chunk(b"IDAT", zlib.compress(b"\0" + samples))


def without_adobe_marker(jpeg: bytes) -> bytes:
    start = jpeg.index(b"\xff\xee")
    return jpeg[:start] + jpeg[start + 2 + int.from_bytes(jpeg[start + 2 : start + 4], "big") :]


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(int)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


VALID = {
    "JPEG": encoded(scene(), "JPEG", exif=oriented(6)),
    "PNG": encoded(scene(12, 9), "PNG", exif=oriented(6)),
    "WEBP": encoded(scene(), "WEBP", exif=oriented(6)),
    "BMP": encoded(scene(9, 7), "BMP"),
    "GIF": encoded(scene(9, 7).quantize(8), "GIF"),
    "TIFF": encoded(scene(9, 7), "TIFF", compression="tiff_lzw", exif=oriented(6)),
}


# Formats and frames


@pytest.mark.parametrize("name", ["PNG", "BMP", "TIFF"])
def test_a_lossless_image_keeps_every_pixel(name: str) -> None:
    """What was saved without loss comes back equal."""
    source = scene()

    image = decode(encoded(source, name))

    assert image.mode == "RGB"
    assert np.array_equal(pixels(source), pixels(image))


def test_lossless_webp_keeps_every_pixel() -> None:
    """WebP has a lossless kind too."""
    source = scene()

    image = decode(encoded(source, "WEBP", lossless=True))

    assert np.array_equal(pixels(source), pixels(image))


@pytest.mark.parametrize("name", ["JPEG", "WEBP"])
def test_a_lossy_image_comes_back_close(name: str) -> None:
    """Lossy formats come back as the same scene, within their own loss."""
    source = scene()

    image = decode(encoded(source, name, quality=95))

    assert image.mode == "RGB"
    assert np.abs(pixels(source) - pixels(image)).mean() < 4


@pytest.mark.parametrize("name", ["GIF", "WEBP", "PNG", "TIFF"])
def test_only_the_first_frame_of_several_is_read(name: str) -> None:
    """An animation or a multi-page file counts as its first image."""
    red, blue = Image.new("RGB", (8, 6), "red"), Image.new("RGB", (8, 6), "blue")
    options = {"lossless": True} if name == "WEBP" else {}

    image = decode(encoded(red, name, save_all=True, append_images=[blue, blue], **options))

    assert np.array_equal(pixels(red), pixels(image))


def test_a_camera_file_of_several_jpegs_counts_as_its_first() -> None:
    """Phones write MPO, which begins as a JPEG and is one as far as we care."""
    data = encoded(scene(), "MPO", save_all=True, append_images=[scene(seed=1)])

    image = decode(data)

    assert np.abs(pixels(scene()) - pixels(image)).mean() < 6


# Colours


@pytest.mark.parametrize("name", ["PNG", "WEBP", "TIFF"])
def test_an_alpha_channel_is_laid_over_white(name: str) -> None:
    """Clear pixels turn white, half-clear ones halfway, whatever colour hides beneath."""
    source = Image.new("RGBA", (3, 1))
    source.putdata([(200, 0, 100, 0), (200, 0, 100, 128), (200, 0, 100, 255)])
    options = {"lossless": True, "exact": True} if name == "WEBP" else {}

    image = decode(encoded(source, name, **options))

    assert pixels(image).tolist() == [[list(WHITE), [227, 127, 177], [200, 0, 100]]]


@pytest.mark.parametrize("name", ["PNG", "TIFF"])
def test_grey_with_alpha_is_laid_over_white(name: str) -> None:
    """LA images are blended as RGBA ones are."""
    source = Image.new("LA", (3, 1))
    source.putdata([(100, 0), (100, 128), (100, 255)])

    image = decode(encoded(source, name))

    assert pixels(image).tolist() == [[[255] * 3, [177] * 3, [100] * 3]]


def test_a_palette_with_alpha_is_laid_over_white() -> None:
    """PA images, which only TIFF holds, blend their palette's colours."""
    source = Image.merge("PA", [Image.new("P", (1, 1), 0), Image.new("L", (1, 1), 0)])
    source.putpalette([200, 0, 100])

    image = decode(encoded(source, "TIFF"))

    assert image.getpixel((0, 0)) == WHITE


@pytest.mark.parametrize(
    ("transparency", "expected"),
    [
        (None, [[200, 0, 0], [0, 200, 0], [0, 0, 200]]),
        (1, [[200, 0, 0], [255, 255, 255], [0, 0, 200]]),
        (bytes([0, 255, 128]), [[255, 255, 255], [0, 200, 0], [127, 127, 227]]),
    ],
)
def test_a_palette_is_looked_up_and_its_clear_entries_are_white(transparency: Any, expected: Any) -> None:
    """A palette may have no clear entry, one, or an alpha for each."""
    source = Image.new("P", (3, 1))
    source.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
    source.putdata([0, 1, 2])
    options = {} if transparency is None else {"transparency": transparency}

    image = decode(encoded(source, "PNG", **options))

    assert pixels(image).tolist() == [expected]


def test_the_clear_colour_of_a_gif_is_white() -> None:
    """A GIF's transparent index shows white, not the colour stored for it."""
    source = Image.new("P", (2, 1))
    source.putpalette([200, 0, 0, 0, 200, 0])
    source.putdata([0, 1])

    image = decode(encoded(source, "GIF", transparency=0))

    assert pixels(image).tolist() == [[list(WHITE), [0, 200, 0]]]


@pytest.mark.parametrize(
    ("depth", "samples", "transparent", "expected"),
    [
        (1, b"\x40", 1, [0, 255]),
        (1, b"\x40", 0, [255, 255]),
        (2, b"\x10", 1, [0, 255]),
        (4, b"\x01", 1, [0, 255]),
        (4, b"\x12", 1, [255, 34]),
        (8, b"\x05\x06", 5, [255, 6]),
        (16, struct.pack(">HH", 1285, 1286), 1285, [255, 5]),
    ],
)
def test_the_clear_level_of_a_grey_png_is_white(
    depth: int, samples: bytes, transparent: int, expected: list[int]
) -> None:
    """A tRNS chunk names the clear level in the depth of the file, not in 8 bits."""
    data = png(2, 1, depth, 0, chunk(b"tRNS", struct.pack(">H", transparent)), row(samples))

    image = decode(data)

    assert pixels(image)[0, :, 0].tolist() == expected


@pytest.mark.parametrize(("depth", "code"), [(8, "B"), (16, "H")])
def test_the_clear_colour_of_an_rgb_png_is_white(depth: int, code: str) -> None:
    """One exact colour is clear, its neighbour is not, at 8 bits and at 16."""
    unit = 1 if depth == 8 else 256
    colours = [level * unit for level in (1, 2, 3, 4, 5, 6)]
    clear = chunk(b"tRNS", struct.pack(">3H", *colours[:3]))

    image = decode(png(2, 1, depth, 2, clear, row(struct.pack(f">6{code}", *colours))))

    assert pixels(image).tolist() == [[list(WHITE), [4, 5, 6]]]


@pytest.mark.parametrize("levels", [[0, 128, 129, 257, 32768, 65278, 65535], [0, 1, 250]], ids=["full", "dark"])
@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
@pytest.mark.parametrize("name", ["PNG", "TIFF"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(name: str, dtype: str, levels: list[int]) -> None:
    """Levels are divided by 257 and rounded, in either byte order, however dark the image."""
    source = Image.fromarray(np.array([levels], dtype=dtype))

    image = decode(encoded(source, name))

    assert [round(level / 257) for level in levels] == pixels(image)[0, :, 0].tolist()


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([0, 32768, 65535], [0, 128, 255]),
        ([-5, 128, 255], [0, 128, 255]),
        ([0, 1_000_000, 2_000_000], [0, 128, 255]),
    ],
)
def test_wide_integer_grey_is_scaled_by_what_its_values_need(levels: list[int], expected: list[int]) -> None:
    """Mode I is read as 8 or 16 bits by its largest value, and beyond that by the value itself."""
    data = encoded(Image.fromarray(np.array([levels], dtype=np.int32)), "TIFF")

    image = decode(data)

    assert expected == pixels(image)[0, :, 0].tolist()


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 100.2, 200.0], [0, 100, 200]),
        ([-1.0, 32768.0, 65535.0], [0, 128, 255]),
        ([float("nan"), float("inf"), 1.0], [0, 0, 255]),
        ([0.0, 1.5e38, 3e38], [0, 128, 255]),
        ([0.0, 0.0, 0.0], [0, 0, 0]),
    ],
)
def test_float_grey_is_scaled_by_what_its_values_need(levels: list[float], expected: list[int]) -> None:
    """Mode F is read as 0 to 1, 8 or 16 bits by its largest value; holes are black."""
    data = encoded(Image.fromarray(np.array([levels], dtype=np.float32)), "TIFF")

    image = decode(data)

    assert expected == pixels(image)[0, :, 0].tolist()


def test_a_cmyk_jpeg_shows_the_same_with_adobe_s_marker_and_without() -> None:
    """Stored upside down by custom, marked so or not: browsers show both alike, and so do we."""
    marked = encoded(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), "JPEG", quality=100)

    images = decode(marked), decode(without_adobe_marker(marked))

    assert [np.abs(pixels(image) - [0, 255, 255]).max() <= 2 for image in images] == [True, True]


def test_cmyk_tiff_is_turned_to_rgb() -> None:
    """CMYK outside of JPEG is not inverted."""
    image = decode(encoded(Image.new("CMYK", (4, 4), (0, 255, 0, 0)), "TIFF"))

    assert image.getpixel((0, 0)) == (255, 0, 255)


@pytest.mark.parametrize("name", ["PNG", "TIFF", "BMP", "GIF"])
def test_grey_and_black_and_white_become_rgb(name: str) -> None:
    """One channel is shown in all three."""
    grey = Image.new("L", (2, 1))
    grey.putdata([7, 250])
    stark = Image.new("1", (2, 1))
    stark.putdata([0, 255])

    assert pixels(decode(encoded(grey, name))).tolist() == [[[7] * 3, [250] * 3]]
    assert pixels(decode(encoded(stark, name))).tolist() == [[[0] * 3, [255] * 3]]


# Orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["PNG", "WEBP", "TIFF"])
def test_an_image_is_turned_as_its_exif_asks(name: str, orientation: int) -> None:
    """All eight orientations agree with Pillow's own transposition of a lossless copy."""
    copy = scene()
    copy.getexif()[ExifTags.Base.Orientation] = orientation
    expected = ImageOps.exif_transpose(copy)
    options = {"lossless": True} if name == "WEBP" else {}

    image = decode(encoded(scene(), name, exif=oriented(orientation), **options))

    assert np.array_equal(pixels(expected), pixels(image))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_decoded_small_is_turned_too(orientation: int) -> None:
    """Decoding a JPEG at a fraction of its size does not lose its orientation."""
    copy = scene(400, 300).reduce(4)
    copy.getexif()[ExifTags.Base.Orientation] = orientation
    expected = ImageOps.exif_transpose(copy)

    data = encoded(scene(400, 300), "JPEG", quality=95, exif=oriented(orientation))
    image = decode(data, short_side=75)

    assert expected.size == image.size
    assert np.abs(pixels(expected) - pixels(image)).mean() < 4


@pytest.mark.parametrize(
    "block",
    [
        b"Exif\0\0",
        b"Exif\0\0garbage that is no directory",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + bytes(range(90)),
    ],
)
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP"])
def test_a_bad_exif_block_does_not_spoil_the_image(name: str, block: bytes) -> None:
    """An image whose EXIF cannot be read is shown as it is stored, without a warning."""
    expected = decode(encoded(scene(), name))

    image = decode(encoded(scene(), name, exif=block))

    assert np.array_equal(pixels(expected), pixels(image))


def test_pillow_s_warnings_stay_inside() -> None:
    """What Pillow remarks about a file does not reach whoever turned warnings into errors."""
    maker_beyond_the_end = b"\x0f\x01\x02\0\xff\0\0\0\xff\xff\0\0"
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + maker_beyond_the_end + bytes(4)
    data = encoded(scene(), "JPEG", exif=exif)
    with pytest.warns(UserWarning, match="Skipping tag"):
        Image.open(io.BytesIO(data)).getexif().get(ExifTags.Base.Make)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = decode(data)

    assert image.size == (40, 30)


# Decoding small


@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [
        ((1600, 1200), 150, (200, 150)),
        ((1600, 1200), 151, (400, 300)),
        ((1200, 1600), 256, (300, 400)),
        ((299, 1200), 150, (299, 1200)),
        ((40, 30), 256, (40, 30)),
    ],
)
def test_a_large_jpeg_is_decoded_no_smaller_than_asked(
    size: tuple[int, int], short_side: int, expected: tuple[int, int]
) -> None:
    """The decoder halves as often as it can, up to an eighth, without going below the side asked for."""
    image = decode(encoded(scene(*size), "JPEG"), short_side=short_side)

    assert expected == image.size


def test_decoding_small_hardly_changes_the_view() -> None:
    """A view of a JPEG decoded at a fraction is the view of the whole one, within a few levels."""
    framing = Framing(64)
    data = encoded(scene(1600, 1200), "JPEG", quality=95)
    whole, small = decode(data), decode(data, short_side=framing.short_side)

    difference = centre_view(whole, framing).int() - centre_view(small, framing).int()

    assert small.width < whole.width
    assert difference.abs().max() <= 4


@pytest.mark.parametrize("name", ["PNG", "WEBP", "BMP"])
def test_other_formats_are_decoded_whole(name: str) -> None:
    """Only JPEG can be decoded at a fraction; the side asked for does not disturb the others."""
    image = decode(encoded(scene(400, 300), name), short_side=10)

    assert image.size == (400, 300)


# Refusals


def test_no_bytes_are_refused() -> None:
    """An upload without content has an error of its own."""
    with pytest.raises(EmptyImage, match="no bytes"):
        decode(b"")


@pytest.mark.parametrize("data", [b"\0", b"hello, world", b"<html>404</html>", b"\x89PN", bytes(64)])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    """Bytes that begin like no image are told what would be accepted."""
    with pytest.raises(NotAnImage, match="JPEG, PNG, WEBP, BMP, GIF, TIFF"):
        decode(data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("ICO", encoded(scene(16, 16), "ICO")),
        ("PPM", encoded(scene(), "PPM")),
        ("JPEG 2000", encoded(scene(), "JPEG2000")),
        ("AVIF", encoded(scene(), "AVIF")),
        ("PDF", encoded(scene(), "PDF")),
        ("HEIC", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"),
        ("JPEG XL", b"\xff\x0a\xfa\x1f"),
        ("PSD", b"8BPS\0\x01"),
        ("SVG", b'<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="http://www.w3.org/2000/svg"/>'),
        ("SVG", b" <svg/>"),
    ],
)
def test_an_image_of_another_format_is_named(name: str, data: bytes) -> None:
    """A known format that is not accepted is called by its name."""
    with pytest.raises(UnsupportedFormat, match=f"^{name} is not accepted; send one of JPEG"):
        decode(data)


def tiff_without_rows() -> bytes:
    height = struct.pack("<HHI", 257, 4, 1)
    data = encoded(Image.new("RGB", (3, 5)), "TIFF")
    start = data.index(height)
    return data[: start + 8] + bytes(4) + data[start + 12 :]


def jpeg_without_rows() -> bytes:
    data = bytearray(encoded(scene(), "JPEG"))
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 2] = bytes(2)
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("PNG", png(0, 5, 8, 2, row(b""))),
        ("PNG", png(5, 0, 8, 2, row(b""))),
        ("BMP", VALID["BMP"][:18] + struct.pack("<ii", 0, 5) + VALID["BMP"][26:]),
        ("GIF", b"GIF89a" + bytes(7) + b"," + bytes(9) + b"\x02\0;"),
        ("JPEG", jpeg_without_rows()),
        ("TIFF", tiff_without_rows()),
    ],
)
def test_an_image_without_width_or_height_is_refused(name: str, data: bytes) -> None:
    """A header that claims no pixels is told apart from a damaged one."""
    with pytest.raises(ZeroSizeImage, match=f"{name} says its width or height is 0"):
        decode(data)


@pytest.mark.parametrize("size", [(9000, 9000), (12_000, 10_000), (60_000, 60_000)])
def test_too_many_pixels_are_refused_by_the_header(size: tuple[int, int]) -> None:
    """The cap fires with no pixel data at all, below, between and above Pillow's own two limits."""
    with pytest.raises(ImageTooLarge, match=f"at most {MAX_PIXELS} pixels"):
        decode(png(*size, 8, 2))


@pytest.mark.parametrize("name", FORMATS)
def test_the_cap_holds_for_every_format(name: str) -> None:
    """An image of exactly the cap passes, and one pixel more is refused."""
    width, height = Image.open(io.BytesIO(VALID[name])).size

    decode(VALID[name], max_pixels=width * height)
    with pytest.raises(ImageTooLarge, match=f"at most {width * height - 1} pixels"):
        decode(VALID[name], max_pixels=width * height - 1)


def test_a_webp_that_claims_a_huge_canvas_is_refused() -> None:
    """WebP keeps its size in a chunk of its own, and is refused by it."""
    huge = (60_000 - 1).to_bytes(3, "little") * 2
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + huge + b"VP8 " + bytes(12)

    with pytest.raises(ImageTooLarge):
        decode(b"RIFF" + struct.pack("<I", len(body)) + body)


def test_a_gif_whose_frame_outgrows_its_screen_is_refused() -> None:
    """A small screen does not hide a frame of four thousand million pixels."""
    frame = b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0)

    with pytest.raises(ImageTooLarge):
        decode(b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + frame + b"\x02\0;")


def test_a_bomb_in_a_text_chunk_is_refused() -> None:
    """Sixteen megabytes of zeros in a PNG comment are not unpacked."""
    bomb = chunk(b"zTXt", b"note\0\0" + zlib.compress(bytes(1 << 24)))

    with pytest.raises(BrokenImage, match="too large"):
        decode(png(1, 1, 8, 2, bomb, row(bytes(3))))


@pytest.mark.parametrize("name", FORMATS)
def test_half_a_file_is_refused(name: str) -> None:
    """A file cut in the middle of its pixels is broken, and the message names its format."""
    data = VALID[name]

    with pytest.raises(BrokenImage, match=f"begins as {name}"):
        decode(data[: len(data) * 6 // 10])


def test_a_corrupt_stream_is_refused() -> None:
    """Pixels whose compression does not hold together are broken."""
    with pytest.raises(BrokenImage, match="begins as PNG"):
        decode(png(4, 4, 8, 2, chunk(b"IDAT", b"\x78\x9c" + bytes(40))))


def outcome(data: bytes, **options: Any) -> str:
    """What became of the bytes: a mode, or an `ImageError`; anything else is raised and fails the test."""
    try:
        return decode(data, max_pixels=1_000_000, **options).mode
    except ImageError as error:
        return type(error).__name__


ERRORS = {
    error.__name__ for error in (BrokenImage, EmptyImage, ImageTooLarge, NotAnImage, UnsupportedFormat, ZeroSizeImage)
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_cut_anywhere_raises_nothing_unforeseen(name: str) -> None:
    """Whatever the length that arrived, the answer is an image or one of the named errors."""
    outcomes = [outcome(VALID[name][:end], short_side=4) for end in range(len(VALID[name]) + 1)]

    assert set(outcomes) <= ERRORS | {"RGB"}
    assert outcomes[0] == "EmptyImage"
    assert outcomes[-1] == "RGB"
    assert "BrokenImage" in outcomes


@FUZZ
@given(prefix=st.sampled_from([b"", *(data[:12] for data in VALID.values())]), noise=st.binary(max_size=200))
def test_random_bytes_raise_nothing_unforeseen(prefix: bytes, noise: bytes) -> None:
    """Noise, with or without a true signature before it, ends in a named error or in an image."""
    assert outcome(prefix + noise) in ERRORS | {"RGB"}


@pytest.mark.parametrize("name", FORMATS)
@FUZZ
@given(data=st.data())
def test_a_damaged_file_raises_nothing_unforeseen(name: str, data: st.DataObject) -> None:
    """Bytes changed, taken out or put in anywhere end in a named error or in an image."""
    damaged = bytearray(VALID[name])
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(damaged)))
        damaged[start : start + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))

    assert outcome(bytes(damaged), short_side=4) in ERRORS | {"RGB"}


# Framing and views


@pytest.mark.parametrize(("size", "ratio", "expected"), [(224, 0.875, 256), (240, 0.882, 272), (64, 1.0, 64)])
def test_the_short_side_leaves_the_crop_its_share(size: int, ratio: float, expected: int) -> None:
    """The short side is the input's size over the share that the crop keeps."""
    assert Framing(size, ratio).short_side == expected


@pytest.mark.parametrize(("size", "ratio"), [(0, 0.875), (224, 0.0), (224, 1.01)])
def test_an_impossible_framing_is_refused(size: int, ratio: float) -> None:
    """A size or share that no image can satisfy fails when the framing is made."""
    with pytest.raises(ValueError, match="is not possible"):
        Framing(size, ratio)


@pytest.mark.parametrize("resample", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(256, 128), (128, 256), (160, 160)])
def test_the_centre_view_equals_scaling_then_cropping(size: tuple[int, int], resample: Any) -> None:
    """One call gives what scaling the shorter side to 64 and cutting the middle 56 gives in two, but for rounding."""
    source = scene(*size)
    width, height = (side * 64 // min(size) for side in size)
    left, top = (width - 56) // 2, (height - 56) // 2
    scaled = source.resize((width, height), Image.Resampling[resample.upper()])
    expected = pixels(scaled.crop((left, top, left + 56, top + 56))).transpose(2, 0, 1)

    view = centre_view(source, Framing(56, resample=resample))

    difference = np.abs(expected - view.int().numpy())
    assert difference.max() <= 2  # at the edges, where the one filter sees what lies beyond and the other does not
    assert difference[:, 3:-3, 3:-3].max() <= 1


@pytest.mark.parametrize("size", [(1003, 997), (301, 777), (2000, 1501)])
def test_the_centre_view_of_any_size_is_what_pillow_shows_of_the_same_part(size: tuple[int, int]) -> None:
    """Cut at whole pixels, and in whole blocks where it shrinks a lot, an image moves by less than can be seen."""
    source, framing = scene(*size), Framing(28)
    side = min(size) * 7 / 8
    left, top = (size[0] - side) / 2, (size[1] - side) / 2
    box = (left, top, left + side, top + side)
    expected = pixels(source.resize((28, 28), Image.Resampling.BICUBIC, box)).transpose(2, 0, 1)

    view = centre_view(source, framing)

    assert np.abs(expected - view.int().numpy()).mean() < 1


def test_the_centre_view_of_a_ramp_spans_what_the_crop_keeps() -> None:
    """Of a 2:1 image the middle 7/16 of the width and 7/8 of the height are seen, the right way up."""
    view = centre_view(ramp(400, 200), Framing(28, resample="bilinear")).float()

    centres = (torch.arange(28) + 0.5) / 28
    expected_red = 255 * (0.5 + (centres - 0.5) * 7 / 16)
    expected_green = 255 * (0.5 + (centres - 0.5) * 7 / 8)
    assert (view[0] - expected_red).abs().max() < 2
    assert (view[1] - expected_green[:, None]).abs().max() < 2
    assert view[2].max() == 0


def test_an_image_much_larger_than_the_view_is_averaged_and_not_sampled() -> None:
    """Stripes one pixel wide melt to grey where the image shrinks thirtyfold."""
    stripes = np.zeros((960, 960, 3), dtype=np.uint8)
    stripes[:, ::2] = 255

    view = centre_view(Image.fromarray(stripes), Framing(28))

    assert (view.int() - 128).abs().max() <= 2


MAKERS: dict[str, Callable[[Image.Image, Framing], torch.Tensor]] = {
    "centre": centre_view,
    "augmented": lambda image, framing: augmented_view(image, framing, seeded()),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 3), (20_000_000, 1)])
def test_any_shape_of_image_has_views(
    size: tuple[int, int], make: Callable[[Image.Image, Framing], torch.Tensor]
) -> None:
    """A dot and a strip of any length still give a full square of their colour."""
    view = make(Image.new("RGB", size, (90, 90, 90)), Framing(16))

    assert view.shape == (3, 16, 16)
    assert view.dtype == torch.uint8
    assert view.is_contiguous()
    assert view.min() == view.max() > 40


@FUZZ
@example(width=7, height=300, seed=13)  # without care, the box of this one begins a rounding error left of the edge
@example(width=300, height=23, seed=24)
@given(width=st.integers(1, 300), height=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_an_augmented_view_never_looks_outside_its_image(width: int, height: int, seed: int) -> None:
    """A plain image of any shape gives a plain view: no border creeps in and no box is out of bounds."""
    view = augmented_view(Image.new("RGB", (width, height), (90, 90, 90)), Framing(8), seeded(seed))

    assert view.shape == (3, 8, 8)
    assert view.min() == view.max() > 40


def test_augmented_views_repeat_with_the_seed_and_differ_within_it() -> None:
    """The generator is the only source of chance."""
    source, framing = scene(), Framing(16)
    first, second = seeded(3), seeded(3)

    one, two = (augmented_view(source, framing, first) for _ in range(2))
    again = augmented_view(source, framing, second)

    assert torch.equal(one, again)
    assert not torch.equal(one, two)


def test_an_augmented_view_leaves_the_global_chance_alone() -> None:
    """Nobody else's random numbers shift because an image was augmented."""
    before = torch.get_rng_state()

    augmented_view(scene(), Framing(16), seeded())

    assert torch.equal(before, torch.get_rng_state())


def striped(width: int, height: int) -> Image.Image:
    """Upright stripes, 16 pixels wide, black and white: jitter cannot move their edges."""
    columns = np.where(np.arange(width) // 16 % 2, 255, 0).astype(np.uint8)
    return Image.fromarray(np.broadcast_to(columns[None, :, None], (height, width, 3)).copy())


def edges(profile: torch.Tensor) -> torch.Tensor:
    """Where a row of levels crosses the middle between its darkest and its brightest."""
    bright = profile > (profile.min() + profile.max()) / 2
    return torch.nonzero(bright[1:] != bright[:-1]).flatten() + 1


def seen(profile: torch.Tensor) -> float:
    """How many pixels of a striped image lie along a row of its view."""
    found = edges(profile)
    return 16 * len(profile) * (len(found) - 1) / float(found[-1] - found[0])


def crops(width: int, height: int) -> list[tuple[float, float]]:
    """Width and height of the part that each of sixty augmented views shows, measured by stripes."""
    upright, lying = striped(width, height), striped(height, width).transpose(Image.Transpose.TRANSPOSE)
    first, second, framing = seeded(), seeded(), Framing(256)
    return [
        (
            seen(augmented_view(upright, framing, first)[0, 0].float()),
            seen(augmented_view(lying, framing, second)[0, :, 0].float()),
        )
        for _ in range(60)
    ]


def test_an_augmented_view_shows_three_tenths_to_all_of_the_image() -> None:
    """The area of the crop goes from 0.3 to 1 and uses most of that."""
    areas = [wide * tall / 512**2 for wide, tall in crops(512, 512)]

    assert 0.29 < min(areas) < 0.4
    assert 0.8 < max(areas) < 1.01


@pytest.mark.parametrize("size", [(512, 512), (1024, 256), (256, 1024)])
def test_an_augmented_view_stretches_by_a_third_at_most(size: tuple[int, int]) -> None:
    """The sides of the crop stand as 3:4 to 4:3, even in an image of four to one."""
    aspects = [wide / tall for wide, tall in crops(*size)]

    assert 0.73 < min(aspects) < 0.8
    assert 1.25 < max(aspects) < 1.37


def test_augmented_views_move_about_and_are_mirrored_half_the_time() -> None:
    """An edge down the middle is seen left and right of the middle, and white as often before it as after."""
    source, generator = Image.new("RGB", (200, 200)), seeded()
    source.paste((255, 255, 255), (100, 0, 200, 200))

    rows = [augmented_view(source, Framing(50), generator)[0, 0].float() for _ in range(100)]

    mirrored = [bool(row[0] > row[-1]) for row in rows]
    places = [int(edges(row.flip(0) if flip else row)[0]) for row, flip in zip(rows, mirrored, strict=True)]
    assert 35 <= sum(mirrored) <= 65
    assert min(places) < 20
    assert max(places) > 30


def test_an_augmented_view_is_never_upside_down() -> None:
    """What is above stays above."""
    generator, source = seeded(), ramp(60, 60)

    drawn = [augmented_view(source, Framing(24), generator)[1].float() for _ in range(50)]

    assert all(green[0].mean() < green[-1].mean() for green in drawn)


def test_jitter_stays_within_thirty_percent() -> None:
    """A plain grey only feels the brightness, which goes from 0.7 to 1.3 and uses most of that."""
    generator, source = seeded(), Image.new("RGB", (20, 20), (100, 100, 100))

    levels = [int(augmented_view(source, Framing(8), generator).max()) for _ in range(200)]

    assert 69 <= min(levels) < 75
    assert 125 < max(levels) <= 130


def test_jitter_shifts_contrast_and_colour_too() -> None:
    """On a plain colour both pull its channels apart: either alone by 1.48 between its ends, both by 2.2."""
    generator, source = seeded(), Image.new("RGB", (8, 8), (120, 60, 60))

    drawn = [augmented_view(source, Framing(8), generator).float() for _ in range(200)]

    ratios = [float(view[0].mean() / view[1].mean()) for view in drawn]
    assert 1.6 < max(ratios) / min(ratios) < 2.3


@pytest.mark.parametrize("augmented", [0, 3])
def test_views_are_the_centre_and_then_the_augmented_ones(augmented: int) -> None:
    """The stack is what the single functions give, in that order."""
    source, framing, generator = scene(), Framing(16), seeded(5)

    stack = views(source, framing, augmented, seeded(5))

    expected = [centre_view(source, framing)]
    expected += [augmented_view(source, framing, generator) for _ in range(augmented)]
    assert stack.dtype == torch.uint8
    assert stack.shape == (1 + augmented, 3, 16, 16)
    assert torch.equal(torch.stack(expected), stack)


# Fixed views


def test_the_first_fixed_view_is_the_centre_view_and_the_second_mirrors_it() -> None:
    """Bit for bit."""
    source, framing = scene(), Framing(16)

    centre, mirrored = fixed_views(source, framing, 2)

    assert torch.equal(centre_view(source, framing), centre)
    assert np.array_equal(centre.numpy()[:, :, ::-1], mirrored.numpy())


@pytest.mark.parametrize("count", range(1, MAX_VIEWS + 1))
def test_fewer_fixed_views_are_the_first_of_more(count: int) -> None:
    """And no two of them are the same."""
    source, framing = scene(61, 47), Framing(16)

    some, most = fixed_views(source, framing, count), fixed_views(source, framing, MAX_VIEWS)

    assert (some.shape, some.dtype) == ((count, 3, 16, 16), torch.uint8)
    assert torch.equal(most[:count], some)
    assert len({view.numpy().tobytes() for view in most}) == MAX_VIEWS


@pytest.mark.parametrize("size", [(60, 40), (40, 60), (1, 1), (300, 2), (2000, 1500)])
def test_the_fixed_views_of_a_mirrored_image_are_the_same_ones_mirrored(size: tuple[int, int]) -> None:
    """In pairs; up to rounding, so two answers that look at whole pairs agree."""
    source, framing = scene(*size), Framing(16)

    here = fixed_views(source, framing, MAX_VIEWS).int()
    there = fixed_views(ImageOps.mirror(source), framing, MAX_VIEWS).int()

    swapped = there.view(-1, 2, 3, 16, 16).flip(1).reshape(there.shape)
    assert (here - swapped).abs().float().mean() < 2


@pytest.mark.parametrize("count", [0, -1, MAX_VIEWS + 1])
def test_more_fixed_views_than_there_are_is_an_error(count: int) -> None:
    """It says how many there are."""
    with pytest.raises(ValueError, match=f"1 to {MAX_VIEWS} fixed views, not {count}"):
        fixed_views(scene(), Framing(8), count)
