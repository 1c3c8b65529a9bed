"""RGB images to the uint8 tensors that networks take: the centre view, and augmented ones.

Does not normalise: mean and deviation are the first layer of a trunk. Bytes become an image in `core.pixels`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance

from core.pixels import FORMATS, MAX_PIXELS, decode

__all__ = [
    "FORMATS",
    "MAX_PIXELS",
    "Box",
    "Framing",
    "augmented_view",
    "centre_view",
    "decode",
    "joined",
    "stacked",
    "views",
]

Box = tuple[float, float, float, float]

_RESAMPLE = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

# Where a picture shrinks twice as much as this or more, whole blocks of it are averaged first. That halves the time
# and, even on black and white noise, moves a pixel by no more than 1.5 levels on average.
_REDUCING_GAP = 3


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
