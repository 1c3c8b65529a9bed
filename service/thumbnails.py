"""Small forms of stored images for people to look at: made once, kept in memory by the digest of the image.

Decoded by the lanes that decode uploads, under the same limits, a few at a time: whatever was stored, an image that is
too costly is refused, and predictions go on. In memory only: nothing of a deleted image is left on a disk.
"""

import asyncio
import io
from collections.abc import Callable

import torch
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from PIL import Image
from torch import Tensor

from engine.decoder import Decoder
from engine.decoding import EncodedImage
from engine.recently_used import RecentlyUsed

LONGER_SIDE = 256  # pixels
KEPT = 4096  # thumbnails of about 8 KB
AT_ONCE = 4  # that are being made; the decoder's threads are for predictions first
MEDIA_TYPE = "image/webp"


class Thumbnails:
    def __init__(self, decoder: Decoder, max_pixels: int) -> None:
        self._decoder = decoder
        self._max_pixels = max_pixels
        self._kept: RecentlyUsed[str, bytes] = RecentlyUsed(KEPT)
        self._turns = CapacityLimiter(AT_ONCE)

    async def get(self, sha256: str, load: Callable[[], bytes]) -> bytes:
        """The thumbnail of an image; `load` reads the image, in a thread. Raises ImageError, Overloaded."""
        known = self._kept.get(sha256)
        if known is not None:
            return known
        async with self._turns:
            known = self._kept.get(sha256)  # another caller may have asked for the same
            return known or self._kept.put(sha256, await self._made(load))

    async def _made(self, load: Callable[[], bytes]) -> bytes:
        def encoded(read: Callable[[], bytes]) -> EncodedImage:
            return EncodedImage(read(), LONGER_SIDE, self._max_pixels, _shrunk)

        (decoded,) = await asyncio.wrap_future(self._decoder.decode([load], encoded))
        return await run_sync(_webp, decoded.view)


def _shrunk(image: Image.Image) -> Tensor:
    """The pixels of a thumbnail, (h, w, 3) bytes."""
    image.thumbnail((LONGER_SIDE, LONGER_SIDE), Image.Resampling.BICUBIC)
    width, height = image.size
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(height, width, 3)


def _webp(pixels: Tensor) -> bytes:
    encoded = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(encoded, "WEBP", quality=80, method=2)
    return encoded.getvalue()
