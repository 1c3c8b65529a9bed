"""Images for requests: JPEGs of the size of thumbnails and of camera photos."""

import io

import numpy as np
from PIL import Image

SMALL = (240, 240)
LARGE = (4000, 3000)  # 12 megapixels
QUALITY = 85


def jpeg(size: tuple[int, int], seed: int) -> bytes:
    """Smooth colours with some grain, so that a file is about as long as that of a photo."""
    generator = np.random.default_rng(seed)
    width, height = size
    coarse = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    grain = generator.normal(0, 6, (height // 2, width // 2, 1)).repeat(2, 0).repeat(2, 1)
    pixels = np.clip(np.asarray(image, dtype=np.float32) + grain, 0, 255).astype(np.uint8)
    return _encoded(Image.fromarray(pixels))


def jpegs(size: tuple[int, int], count: int) -> list[bytes]:
    return [jpeg(size, seed) for seed in range(count)]


def shot(class_number: int, number: int) -> bytes:
    """An image of an artificial class: the same colours in every image, with small differences."""
    own = np.random.default_rng([1, class_number]).integers(0, 256, (6, 8, 3))
    noise = np.random.default_rng([2, class_number, number]).normal(0, 12, (6, 8, 3))
    coarse = np.clip(own + noise, 0, 255).astype(np.uint8)
    return _encoded(Image.fromarray(coarse).resize(SMALL, Image.Resampling.BICUBIC))


def _encoded(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()
