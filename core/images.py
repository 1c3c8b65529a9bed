"""RGB images to the uint8 tensors that networks take: the centre view, other fixed views, and augmented views.

Does not normalise: the first layer of a trunk does. Bytes become an image in `core.pixels`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance

from core.pixels import FORMATS, MAX_PIXELS, decode

__all__ = [
    "FORMATS",
    "MAX_PIXELS",
    "MAX_VIEWS",
    "Box",
    "Framing",
    "augmented_view",
    "centre_view",
    "decode",
    "fixed_views",
    "joined",
    "stacked",
    "views",
]

Box = tuple[float, float, float, float]

_RESAMPLE = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

# An image that shrinks at least twice as much as this is averaged over whole blocks first. That halves the time and,
# even on black and white noise, changes a pixel by no more than 1.5 levels on average.
REDUCING_GAP = 3

# Of the shorter side of an image, what its other fixed views show; the centre view comes before them. Chosen on
# training images of birds: corners, and the whole image squeezed into the square, were worth less or nothing.
_OTHER_SHARES = (0.7, 1.0)
MAX_VIEWS = 2 * (1 + len(_OTHER_SHARES))  # each crop and its mirror image


@dataclass(frozen=True)
class Framing:
    """How an image is cropped and scaled to a backbone's input."""

    size: int  # side of the square input
    crop_ratio: float = 0.875  # share of the shorter side that the centre crop keeps
    resample: Literal["bilinear", "bicubic"] = "bicubic"

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.crop_ratio <= 1:
            raise ValueError(f"{self} is not possible: size is at least 1, crop_ratio above 0 and at most 1")

    @property
    def short_side(self) -> int:
        """The length of the shorter side when the centre is cropped."""
        return round(self.size / self.crop_ratio)

    def blank(self) -> torch.Tensor:
        """A batch of one black image, to find out a network's shapes and to warm it up."""
        return torch.zeros(1, 3, self.size, self.size, dtype=torch.uint8)


def centre_view(image: Image.Image, framing: Framing) -> torch.Tensor:
    """The centre of the image, as if its shorter side were scaled and the centre cropped then.

    Every prediction waits for this, so torch does the scaling, in less than half of Pillow's time: with the same
    filter, and pixels within a level or two of Pillow's. Torch crops at whole pixels only, so the crop is rounded.
    """
    return _centre_square(image, framing, round(min(image.size) * framing.size / framing.short_side))


def fixed_views(image: Image.Image, framing: Framing, count: int) -> torch.Tensor:
    """The first `count` of the views that a prediction can look at, (count, 3, size, size).

    They are the centre view, a closer crop and the whole centre square, each followed by its mirror image.
    """
    if not 1 <= count <= MAX_VIEWS:
        raise ValueError(f"an image has 1 to {MAX_VIEWS} fixed views, not {count}")
    return stacked(list(islice(_each_view(image, framing), count)))


def augmented_view(image: Image.Image, framing: Framing, generator: torch.Generator) -> torch.Tensor:
    """A random part of the image, maybe mirrored, with light and colour changed by up to 30 %."""
    draws = torch.rand(8, generator=generator, device=generator.device).tolist()
    view = _cut(image, framing, _random_box(image.size, *draws[:4]))
    if draws[4] < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    view = ImageEnhance.Brightness(view).enhance(0.7 + 0.6 * draws[5])
    view = ImageEnhance.Contrast(view).enhance(0.7 + 0.6 * draws[6])
    view = ImageEnhance.Color(view).enhance(0.7 + 0.6 * draws[7])
    return _tensor(view)  # (3, size, size)


def views(image: Image.Image, framing: Framing, augmented: int, generator: torch.Generator) -> torch.Tensor:
    """The centre view, then this many augmented ones."""
    others = [augmented_view(image, framing, generator) for _ in range(augmented)]
    return torch.stack([centre_view(image, framing), *others])  # (1 + augmented, 3, size, size)


def _each_view(image: Image.Image, framing: Framing) -> Iterator[torch.Tensor]:
    """Makes no view before it is asked for: most predictions take the first only."""
    yield (view := centre_view(image, framing))
    yield view.flip(-1)
    for share in _OTHER_SHARES:
        yield (view := _centre_square(image, framing, round(min(image.size) * share)))
        yield view.flip(-1)


def _centre_square(image: Image.Image, framing: Framing, side: int) -> torch.Tensor:
    """The square of this side, or of one pixel at least, in the centre of the image, scaled."""
    side = max(1, side)
    blocks = max(1, side // (REDUCING_GAP * framing.size))
    side -= side % blocks
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return _scaled(image.reduce(blocks, box) if blocks > 1 else image.crop(box), framing)  # (3, size, size)


def _random_box(size: tuple[int, int], area: float, aspect: float, x: float, y: float) -> Box:
    """A part of 0.3 to 1 of the area with sides of 3:4 to 4:3, shrunk to fit; draws are uniform in [0, 1)."""
    width, height = size
    pixels = width * height * (0.3 + 0.7 * area)
    ratio = (3 / 4) * (16 / 9) ** aspect  # log-uniform: as often taller as wider
    wide, tall = math.sqrt(pixels * ratio), math.sqrt(pixels / ratio)
    fit = min(1.0, width / wide, height / tall)
    wide, tall = min(wide * fit, width), min(tall * fit, height)  # rounding may make either slightly too long
    left, top = x * (width - wide), y * (height - tall)
    return left, top, left + wide, top + tall


def _cut(image: Image.Image, framing: Framing, box: Box) -> Image.Image:
    """Crop and scale in one step; the filter still uses the pixels around the box."""
    size = (framing.size, framing.size)
    return image.resize(size, _RESAMPLE[framing.resample], box, reducing_gap=REDUCING_GAP)


def _scaled(image: Image.Image, framing: Framing) -> torch.Tensor:
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[
        None
    ]  # channels last in memory, for which torch is fast
    size = (framing.size, framing.size)
    return F.interpolate(pixels, size, mode=framing.resample, antialias=True)[0].contiguous()


def stacked(images: Sequence[torch.Tensor]) -> torch.Tensor:
    """n images (3, s, s) → (n, 3, s, s); a single one is not copied."""
    return joined([image[None] for image in images])


def joined(batches: Sequence[torch.Tensor]) -> torch.Tensor:
    """Batches of images as one, by NumPy: torch would wake all its threads to copy a few bytes."""
    return batches[0] if len(batches) == 1 else torch.from_numpy(np.concatenate([batch.numpy() for batch in batches]))


def _tensor(view: Image.Image) -> torch.Tensor:
    # Copied in NumPy: arrays that Pillow shares are read-only, and torch warns about them.
    return torch.from_numpy(np.asarray(view).transpose(2, 0, 1).copy())  # (3, size, size)
