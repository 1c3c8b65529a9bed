"""Pictures to ask about: JPEGs of the size that thumbnails have and of the size that cameras make."""

import io

import numpy as np
from PIL import Image

SMALL = (240, 240)
LARGE = (4000, 3000)  # 12 megapixels
QUALITY = 85


def jpeg(size: tuple[int, int], seed: int) -> bytes:
    """Smooth colours with some grain, so that a file is about as long as a photograph's."""
    generator = np.random.default_rng(seed)
    width, height = size
    coarse = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    grain = generator.normal(0, 6, (height // 2, width // 2, 1)).repeat(2, 0).repeat(2, 1)
    pixels = np.clip(np.asarray(picture, dtype=np.float32) + grain, 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def shot(class_number: int, number: int) -> bytes:
    """A picture of a made-up class: its own colours, a little different in each picture."""
    own = np.random.default_rng([1, class_number]).integers(0, 256, (6, 8, 3))
    other = np.random.default_rng([2, class_number, number]).normal(0, 12, (6, 8, 3))
    coarse = np.clip(own + other, 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(coarse).resize(SMALL, Image.Resampling.BICUBIC).save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def jpegs(size: tuple[int, int], count: int) -> list[bytes]:
    return [jpeg(size, seed) for seed in range(count)]
