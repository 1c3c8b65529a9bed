"""Bytes to an upright RGB image: the one place where an image is decoded, for learning and for serving alike.

Refuses what it cannot turn into pixels with an `ImageError` that says why; no bytes make it raise anything else. Does
not ask what decoding costs: `core.image_cost` judges that before. Imports no torch, so that a process that only
decodes starts at once and stays small.
"""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import (
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from core.errors import (
    BrokenImage,
    EmptyImage,
    ImageError,
    ImageTooCostly,
    ImageTooLarge,
    NotAnImage,
    UnsupportedFormat,
    ZeroSizeImage,
)

MAX_PIXELS = 50_000_000  # 200 MB once decoded; a 48-megapixel phone picture still fits
LONGEST = 8  # short sides: what lies beyond, at both ends of a strip, is in no view of its middle

# Imported by name, so that Pillow registers these decoders and does not go looking for its forty others.
_PLUGINS: dict[str, type[ImageFile.ImageFile]] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WEBP": WebPImagePlugin.WebPImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
}
FORMATS = tuple(_PLUGINS)
_ACCEPTED = f"send one of {', '.join(FORMATS)}"

# What people send by mistake, known by its first bytes alone: no decoder runs to name it.
_FOREIGN = {
    "HEIC": rb".{4}ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)",
    "AVIF": rb".{4}ftypavi[fs]",
    "JPEG XL": rb"\xff\x0a|\x00{3}\x0cJXL ",
    "JPEG 2000": rb"\x00{3}\x0cjP  |\xff\x4f\xff\x51",
    "SVG": rb"\s*(<\?xml.*)?<svg",
    "PDF": rb"%PDF-",
    "ICO": rb"\x00\x00\x01\x00",
    "PSD": rb"8BPS",
    "PPM": rb"P[1-6]\s",
}

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Pillow brings these PNG samples to 8 bits, but leaves the transparent colour as it was stored.
_TRANSPARENCY_SCALE = {"L;2": 85.0, "L;4": 17.0, "RGB;16B": 1 / 256}

_STRIP_PIXELS = 1_000_000  # what is converted at a time: a conversion of the whole would need several times its memory

_HUSH: Any = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


def decode(data: bytes, *, short_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode the first frame to upright RGB, transparency over white.

    With `short_side`, a JPEG, or another image of more than a megapixel, is shrunk in whole blocks, and never below
    `short_side`; of what is longer than `LONGEST` short sides the middle is kept. Decoding the result again changes
    nothing. Ask for more than a framing's `short_side` if small crops are to stay sharp.
    """
    _hush_pillow()
    if not data:
        raise EmptyImage(f"the picture has no bytes; {_ACCEPTED}")
    try:
        image = _open(data, max_pixels)
        if short_side is not None:
            image.draft(None, (short_side, short_side))  # JPEG alone: fewer pixels from the start
        _mend_transparency(image)
        image.load()
        return _upright(_small_rgb(image, short_side), image)
    except ImageError:
        raise
    except MemoryError:
        raise ImageTooCostly("the picture needs more memory to decode than is allowed; scale it down") from None
    except Exception as error:  # a decoder fed with garbage raises whatever its parsing ran into
        raise _broken(signature(data), f"{type(error).__name__}: {error}") from error


def signature(data: bytes) -> str | None:
    """The accepted format whose first bytes these are; no decoder takes what has none."""
    prefix = data[:16]
    return next((name for name in FORMATS if (accept := Image.OPEN[name][1]) and accept(prefix)), None)


def _hush_pillow() -> None:
    """Keep Pillow's remarks on a sender's picture (a corrupt EXIF block, many pixels) from becoming warnings.

    The filter stays, because `warnings.catch_warnings` does not survive threads: overlapping decodes would
    restore each other's filters. It is set only when missing, as each change makes Python forget which
    warnings it has shown.
    """
    first: Any = next(iter(warnings.filters), None)
    if first != _HUSH:
        warnings.filterwarnings("ignore", module=_HUSH[3].pattern)


def _open(data: bytes, max_pixels: int) -> ImageFile.ImageFile:
    """Read the header and nothing more."""
    allowed = f"at most {max_pixels} pixels are allowed, so scale it down"
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise _refusal(data) from None
    except Image.DecompressionBombError as error:  # Pillow's own cap: no `max_pixels` reaches beyond it
        raise ImageTooLarge(f"the picture is too large ({error}); {allowed}") from None
    width, height = image.size
    if width * height > max_pixels:
        raise ImageTooLarge(f"the picture is {width} x {height} = {width * height} pixels; {allowed}")
    return image


def _refusal(data: bytes) -> ImageError:
    """Say why no decoder took the bytes."""
    name = signature(data)
    if name and _claims_no_pixels(_PLUGINS[name], data):
        return ZeroSizeImage(f"the header of this {name} says its width or height is 0; export it again")
    if name:
        return _broken(name, "its header is damaged, or of a variant that is not supported")
    for foreign, pattern in _FOREIGN.items():
        if re.match(pattern, data[:1024], re.DOTALL):
            return UnsupportedFormat(f"{foreign} is not accepted; {_ACCEPTED}")
    return NotAnImage(f"the bytes begin like no picture format; {_ACCEPTED}")


def _claims_no_pixels(plugin: type[ImageFile.ImageFile], data: bytes) -> bool:
    image = plugin.__new__(plugin)  # made apart from its __init__, to read what it learnt before it gave up
    with contextlib.suppress(Exception):
        plugin.__init__(image, io.BytesIO(data))
    return bool(image.mode) and min(image.size) == 0  # every plugin sets the mode after the size


def _broken(name: str | None, why: str) -> BrokenImage:
    return BrokenImage(f"the picture begins as {name} but cannot be decoded ({why}); send an intact file")


def _mend_transparency(image: ImageFile.ImageFile) -> None:
    """Bring a PNG's transparent colour to the scale that its pixels will have."""
    rawmode = image.tile[0].args if image.tile else None
    stored = image.info.get("transparency")
    if isinstance(rawmode, str) and rawmode in _TRANSPARENCY_SCALE and stored is not None:
        scale = _TRANSPARENCY_SCALE[rawmode]
        mended = tuple(int(value * scale) for value in np.atleast_1d(stored))
        image.info["transparency"] = mended if len(mended) > 1 else mended[0]


def _small_rgb(image: Image.Image, short_side: int | None) -> Image.Image:
    """The part that is needed, as RGB; a large one in strips and shrunk in whole blocks, so that memory stays small."""
    white = _white_level(image)
    left, top, right, bottom = _middle(image.size) if short_side else (0, 0, *image.size)
    width, height = right - left, bottom - top
    if width * height <= _STRIP_PIXELS:
        return _rgb(image if (width, height) == image.size else image.crop((left, top, right, bottom)), white)
    blocks = max(1, min(image.size) // short_side) if short_side else 1
    small = Image.new("RGB", (-(-width // blocks), -(-height // blocks)))
    for upper, lower in _strips(top, bottom, width, blocks):
        strip = _rgb(image.crop((left, upper, right, lower)), white)
        small.paste(strip.reduce(blocks) if blocks > 1 else strip, (0, (upper - top) // blocks))
    return small


def _middle(size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Where the middle of an image is that is no longer than `LONGEST` times its short side."""
    longest = LONGEST * min(size)
    width, height = min(size[0], longest), min(size[1], longest)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return left, top, left + width, top + height


def _strips(top: int, bottom: int, width: int, blocks: int) -> Iterator[tuple[int, int]]:
    """Upper and lower ends of strips that are whole blocks high."""
    step = max(1, _STRIP_PIXELS // (width * blocks)) * blocks
    return ((upper, min(upper + step, bottom)) for upper in range(top, bottom, step))


def _rgb(image: Image.Image, white: float) -> Image.Image:
    if _is_deep_grey(image):
        return _from_deep_grey(image, white).convert("RGB")
    if image.has_transparency_data:
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        paper = Image.new("RGB", image.size, "white")
        paper.paste(rgba, mask=rgba)
        return paper
    return image if image.mode == "RGB" else image.convert("RGB")


def _is_deep_grey(image: Image.Image) -> bool:
    return image.mode == "F" or image.mode.startswith("I")


def _white_level(image: Image.Image) -> float:
    """Which value of a deep grey image is white.

    Modes I and F do not say. It is taken to be the first of 1, 255 and 65535 that no pixel exceeds, or else the
    brightest pixel.
    """
    if not _is_deep_grey(image) or image.mode.startswith("I;16"):
        return 65535
    width, height = image.size
    strips = (image.crop((0, upper, width, lower)) for upper, lower in _strips(0, height, width, 1))
    top = max(float(_finite(strip).max()) for strip in strips)
    return next((white for white in (1, 255, 65535) if top <= white), top)


def _finite(image: Image.Image) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """The values (height, width), nought where they are not a number or have no end."""
    values = np.array(image, dtype=np.float32)
    return np.nan_to_num(values, copy=False, nan=0, posinf=0, neginf=0)


def _from_deep_grey(image: Image.Image, white: float) -> Image.Image:
    """Scale 16-bit, 32-bit and float grey to 8 bits, where Pillow's own conversion would clip; below zero is black."""
    values = _finite(image)
    transparent = values == image.info.get("transparency", np.nan)
    values /= white
    np.clip(values, 0, 1, out=values)
    values *= 255
    np.rint(values, out=values)
    values[transparent] = 255
    return Image.fromarray(values.astype(np.uint8))


def _upright(rgb: Image.Image, source: Image.Image) -> Image.Image:
    """Turn `rgb` as the EXIF block of its loaded source asks; a TIFF was turned while it was loaded."""
    try:
        turn = _UPRIGHT.get(source.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # an unreadable EXIF block does not make the pixels unusable
        return rgb
    return rgb if turn is None else rgb.transpose(turn)
