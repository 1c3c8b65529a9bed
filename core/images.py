"""Bytes to an RGB uint8 tensor: the one place where a picture is decoded, for learning and for serving alike.

Refuses what it cannot turn into pixels with an `ImageError` that says why; no bytes make it raise anything
else. Reads no disk, no network. Does not normalise: mean and deviation are the first layer of a trunk.
"""

import contextlib
import io
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import (
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    Image,
    ImageEnhance,
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
    ImageTooLarge,
    NotAnImage,
    UnsupportedFormat,
    ZeroSizeImage,
)

Box = tuple[float, float, float, float]

MAX_PIXELS = 50_000_000  # 200 MB once decoded; a 48-megapixel phone picture still fits

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

_RESAMPLE = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

# Where a picture shrinks twice as much as this or more, whole blocks of it are averaged first. That halves the time
# and, even on black and white noise, moves a pixel by no more than 1.5 levels on average.
_REDUCING_GAP = 3

_HUSH: Any = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


@dataclass(frozen=True)
class Framing:
    """How a picture is cut to a backbone's input."""

    size: int  # side of the square input
    crop_ratio: float = 0.875  # share of the shorter side that the centre crop keeps
    resample: Literal["bilinear", "bicubic"] = "bicubic"

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.crop_ratio <= 1:
            raise ValueError(f"{self} cuts nothing: size is at least 1, crop_ratio above 0 and at most 1")

    @property
    def short_side(self) -> int:
        """What the shorter side is scaled to before the centre crop."""
        return round(self.size / self.crop_ratio)

    def blank(self) -> torch.Tensor:
        """A batch of one black picture: to ask a network for its shapes, and to warm it up."""
        return torch.zeros(1, 3, self.size, self.size, dtype=torch.uint8)


def decode(data: bytes, *, short_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode the first frame to upright RGB, transparency over white.

    With `short_side`, a large JPEG is decoded at a half, a quarter or an eighth of its size, and never below
    `short_side`. Ask for more than a framing's `short_side` if small crops are to stay sharp.
    """
    _hush_pillow()
    if not data:
        raise EmptyImage(f"the picture has no bytes; {_ACCEPTED}")
    try:
        image = _open(data, max_pixels)
        if short_side is not None:
            image.draft(None, (short_side, short_side))
        _mend_transparency(image)
        image.load()
        return _upright(_rgb(image), image)
    except ImageError:
        raise
    except Exception as error:  # a decoder fed with garbage raises whatever its parsing ran into
        raise _broken(_signature(data), f"{type(error).__name__}: {error}") from error


def centre_view(image: Image.Image, framing: Framing) -> torch.Tensor:
    """The middle of the picture, as scaling its shorter side and then cutting the centre would show it.

    Every prediction waits for this, so it is scaled by torch, in less than half the time that Pillow takes: the same
    filter, within a level or two of the same pixels. Torch knows whole pixels only, which the cut is rounded to.
    """
    side = max(1, round(min(image.size) * framing.size / framing.short_side))
    blocks = max(1, side // (_REDUCING_GAP * framing.size))
    side -= side % blocks
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return _scaled(image.reduce(blocks, box) if blocks > 1 else image.crop(box), framing)  # (3, size, size)


def augmented_view(image: Image.Image, framing: Framing, generator: torch.Generator) -> torch.Tensor:
    """A random part of the picture, maybe mirrored, with its light and colour shifted by up to 30 %."""
    draws = torch.rand(8, generator=generator, device=generator.device).tolist()
    view = _cut(image, framing, _random_box(image.size, *draws[:4]))
    if draws[4] < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    view = ImageEnhance.Brightness(view).enhance(0.7 + 0.6 * draws[5])
    view = ImageEnhance.Contrast(view).enhance(0.7 + 0.6 * draws[6])
    view = ImageEnhance.Color(view).enhance(0.7 + 0.6 * draws[7])
    return _tensor(view)  # (3, size, size)


def views(image: Image.Image, framing: Framing, augmented: int, generator: torch.Generator) -> torch.Tensor:
    """The centre view, then as many augmented ones as asked for."""
    others = [augmented_view(image, framing, generator) for _ in range(augmented)]
    return torch.stack([centre_view(image, framing), *others])  # (1 + augmented, 3, size, size)


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
    name = _signature(data)
    if name and _claims_no_pixels(_PLUGINS[name], data):
        return ZeroSizeImage(f"the header of this {name} says its width or height is 0; export it again")
    if name:
        return _broken(name, "its header is damaged, or of a variant that is not supported")
    for foreign, pattern in _FOREIGN.items():
        if re.match(pattern, data[:1024], re.DOTALL):
            return UnsupportedFormat(f"{foreign} is not accepted; {_ACCEPTED}")
    return NotAnImage(f"the bytes begin like no picture format; {_ACCEPTED}")


def _signature(data: bytes) -> str | None:
    """The accepted format whose first bytes these are."""
    return next((name for name in FORMATS if (accept := Image.OPEN[name][1]) and accept(data[:16])), None)


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


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        return _from_deep_grey(image).convert("RGB")
    if image.has_transparency_data:
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(rgba, mask=rgba)
        return white
    return image if image.mode == "RGB" else image.convert("RGB")


def _from_deep_grey(image: Image.Image) -> Image.Image:
    """Scale 16-bit, 32-bit and float grey to 8 bits, where Pillow's own conversion would clip.

    Modes I and F do not say which value is white. It is taken to be the first of 1, 255 and 65535 that no
    pixel exceeds, or else the brightest pixel. Below zero is black, and so is what is not a number.
    """
    values = np.array(image, dtype=np.float32)  # (height, width)
    np.nan_to_num(values, copy=False, nan=0, posinf=0, neginf=0)
    transparent = values == image.info.get("transparency", np.nan)
    top = float(values.max())
    white = 65535 if image.mode.startswith("I;16") else next((w for w in (1, 255, 65535) if top <= w), top)
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


def _random_box(size: tuple[int, int], area: float, aspect: float, x: float, y: float) -> Box:
    """A part of 0.3 to 1 of the area with sides of 3:4 to 4:3, shrunk to fit; draws are uniform in [0, 1)."""
    width, height = size
    pixels = width * height * (0.3 + 0.7 * area)
    ratio = (3 / 4) * (16 / 9) ** aspect  # log-uniform: as often taller as wider
    wide, tall = math.sqrt(pixels * ratio), math.sqrt(pixels / ratio)
    fit = min(1.0, width / wide, height / tall)
    wide, tall = min(wide * fit, width), min(tall * fit, height)  # rounding may leave either a hair too long
    left, top = x * (width - wide), y * (height - tall)
    return left, top, left + wide, top + tall


def _cut(image: Image.Image, framing: Framing, box: Box) -> Image.Image:
    """Crop and scale at once; the filter still sees the pixels around the box."""
    size = (framing.size, framing.size)
    return image.resize(size, _RESAMPLE[framing.resample], box, reducing_gap=_REDUCING_GAP)


def _scaled(image: Image.Image, framing: Framing) -> torch.Tensor:
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]  # in the order for which torch is fast
    size = (framing.size, framing.size)
    return F.interpolate(pixels, size, mode=framing.resample, antialias=True)[0].contiguous()


def stacked(pictures: Sequence[torch.Tensor]) -> torch.Tensor:
    """(n, 3, s, s) out of n times (3, s, s); a single one is not copied."""
    return joined([picture[None] for picture in pictures])


def joined(batches: Sequence[torch.Tensor]) -> torch.Tensor:
    """Batches of pictures as one, by NumPy: torch would wake all its threads to copy some bytes."""
    return batches[0] if len(batches) == 1 else torch.from_numpy(np.concatenate([batch.numpy() for batch in batches]))


def _tensor(view: Image.Image) -> torch.Tensor:
    # Copied in NumPy: what Pillow lends is read-only, and torch warns of such arrays.
    return torch.from_numpy(np.asarray(view).transpose(2, 0, 1).copy())  # (3, size, size)
