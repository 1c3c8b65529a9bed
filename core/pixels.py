"""Bytes to an upright RGB image: the one place where an image is decoded, for learning and for serving alike.

Raises an `ImageError` with the reason for bytes that it cannot decode, and never any other error. Does not look at
what decoding costs: `core.image_cost` estimates that before. Imports no torch, so that a process that only decodes
starts fast and stays small.
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

MAX_PIXELS = 50_000_000  # 200 MB once decoded; a 48-megapixel photo of a phone still fits
LONGEST = 8  # short sides: the two ends of a longer image are in no view of its centre

# Imported by name, so that Pillow registers these decoders and does not search for its forty others.
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

# Formats that people send by mistake, recognised by their first bytes: no decoder runs to name them.
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

# Pillow converts these PNG samples to 8 bits, but leaves the transparent colour as it was stored.
_TRANSPARENCY_SCALE = {"L;2": 85.0, "L;4": 17.0, "RGB;16B": 1 / 256}

STRIP_PIXELS = 1_000_000  # converted at a time: converting a whole image would need several times its memory

_HUSH: Any = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


def decode(data: bytes, *, short_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode the first frame to upright RGB, transparency over white.

    With `short_side`, a JPEG, or another image of more than a megapixel, is shrunk in whole blocks, and never below
    `short_side`; of an image longer than `LONGEST` short sides the centre is kept. Decoding the result again changes
    nothing. Ask for more than a framing's `short_side` to keep small crops sharp.
    """
    _hush_pillow()
    if not data:
        raise EmptyImage(f"the image has no bytes; {_ACCEPTED}")
    try:
        image = _open(data, max_pixels)
        if short_side is not None:
            image.draft(None, (short_side, short_side))  # JPEG only: decodes fewer pixels from the start
        _mend_transparency(image)
        image.load()
        return _upright(_small_rgb(image, short_side), image)
    except ImageError:
        raise
    except MemoryError:
        raise ImageTooCostly("the image needs more memory to decode than is allowed; scale it down") from None
    except Exception as error:  # a decoder raises any exception on malformed data
        raise _broken(signature(data), f"{type(error).__name__}: {error}") from error


def signature(data: bytes) -> str | None:
    """The accepted format that begins with these bytes; None where no decoder accepts them."""
    prefix = data[:16]
    return next((name for name in FORMATS if (accept := Image.OPEN[name][1]) and accept(prefix)), None)


def _hush_pillow() -> None:
    """Suppress Pillow's warnings about an image, such as a corrupt EXIF block or many pixels.

    The filter stays, because `warnings.catch_warnings` is not safe with threads: overlapping decodes would restore
    each other's filters. It is set only when missing, as each change makes Python forget which warnings it has shown.
    """
    first: Any = next(iter(warnings.filters), None)
    if first != _HUSH:
        warnings.filterwarnings("ignore", module=_HUSH[3].pattern)


def _open(data: bytes, max_pixels: int) -> ImageFile.ImageFile:
    """Read the header only."""
    allowed = f"at most {max_pixels} pixels are allowed, so scale it down"
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise _refusal(data) from None
    except Image.DecompressionBombError as error:  # Pillow's own limit, whatever `max_pixels` is
        raise ImageTooLarge(f"the image is too large ({error}); {allowed}") from None
    width, height = image.size
    if width * height > max_pixels:
        raise ImageTooLarge(f"the image is {width} x {height} = {width * height} pixels; {allowed}")
    return image


def _refusal(data: bytes) -> ImageError:
    """The reason why no decoder accepts the bytes."""
    name = signature(data)
    if name and _claims_no_pixels(_PLUGINS[name], data):
        return ZeroSizeImage(f"the header of this {name} says its width or height is 0; export it again")
    if name:
        return _broken(name, "its header is damaged, or of a variant that is not supported")
    for foreign, pattern in _FOREIGN.items():
        if re.match(pattern, data[:1024], re.DOTALL):
            return UnsupportedFormat(f"{foreign} is not accepted; {_ACCEPTED}")
    return NotAnImage(f"this is not a known image format; {_ACCEPTED}")


def _claims_no_pixels(plugin: type[ImageFile.ImageFile], data: bytes) -> bool:
    image = plugin.__new__(plugin)  # without its __init__, to read what that found before it failed
    with contextlib.suppress(Exception):
        plugin.__init__(image, io.BytesIO(data))
    return bool(image.mode) and min(image.size) == 0  # every plugin sets the mode after the size


def _broken(name: str | None, why: str) -> BrokenImage:
    return BrokenImage(f"the image begins as {name} but cannot be decoded ({why}); send an intact file")


def _mend_transparency(image: ImageFile.ImageFile) -> None:
    """Convert a PNG's transparent colour to the scale that its pixels will have."""
    rawmode = image.tile[0].args if image.tile else None
    stored = image.info.get("transparency")
    if isinstance(rawmode, str) and rawmode in _TRANSPARENCY_SCALE and stored is not None:
        scale = _TRANSPARENCY_SCALE[rawmode]
        mended = tuple(int(value * scale) for value in np.atleast_1d(stored))
        image.info["transparency"] = mended if len(mended) > 1 else mended[0]


def _small_rgb(image: Image.Image, short_side: int | None) -> Image.Image:
    """The needed part as RGB; a large one in strips and shrunk in whole blocks, to save memory."""
    white = _white_level(image)
    left, top, right, bottom = _centre(image.size) if short_side else (0, 0, *image.size)
    width, height = right - left, bottom - top
    if width * height <= STRIP_PIXELS:
        return _rgb(image if (width, height) == image.size else image.crop((left, top, right, bottom)), white)
    blocks = max(1, min(image.size) // short_side) if short_side else 1
    small = Image.new("RGB", (-(-width // blocks), -(-height // blocks)))
    for upper, lower in _strips(top, bottom, width, blocks):
        strip = _rgb(image.crop((left, upper, right, lower)), white)
        small.paste(strip.reduce(blocks) if blocks > 1 else strip, (0, (upper - top) // blocks))
    return small


def _centre(size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The box of the centre of an image, no longer than `LONGEST` short sides."""
    longest = LONGEST * min(size)
    width, height = min(size[0], longest), min(size[1], longest)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return left, top, left + width, top + height


def _strips(top: int, bottom: int, width: int, blocks: int) -> Iterator[tuple[int, int]]:
    """Upper and lower ends of strips whose height is in whole blocks."""
    step = max(1, STRIP_PIXELS // (width * blocks)) * blocks
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
    """The value of white in a deep grey image.

    Modes I and F do not define it. It is taken to be the first of 1, 255 and 65535 that no pixel exceeds, or else the
    brightest pixel.
    """
    if not _is_deep_grey(image) or image.mode.startswith("I;16"):
        return 65535
    width, height = image.size
    strips = (image.crop((0, upper, width, lower)) for upper, lower in _strips(0, height, width, 1))
    top = max(float(_finite(strip).max()) for strip in strips)
    return next((white for white in (1, 255, 65535) if top <= white), top)


def _finite(image: Image.Image) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """The values (height, width), with zero for NaN and infinity."""
    values = np.array(image, dtype=np.float32)
    return np.nan_to_num(values, copy=False, nan=0, posinf=0, neginf=0)


def _from_deep_grey(image: Image.Image, white: float) -> Image.Image:
    """Scale 16-bit, 32-bit and float grey to 8 bits, where Pillow would clip; negative values are black."""
    values = _finite(image)
    transparent = values == image.info.get("transparency", np.nan)
    values /= white
    np.clip(values, 0, 1, out=values)
    values *= 255
    np.rint(values, out=values)
    values[transparent] = 255
    return Image.fromarray(values.astype(np.uint8))


def _upright(rgb: Image.Image, source: Image.Image) -> Image.Image:
    """Rotate `rgb` as the EXIF block of its loaded source says; Pillow rotates a TIFF while loading it."""
    try:
        turn = _UPRIGHT.get(source.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # the pixels can be used even if the EXIF block cannot
        return rgb
    return rgb if turn is None else rgb.transpose(turn)
