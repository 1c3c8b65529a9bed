"""Decoding one image: its bytes, the limits it is decoded under, and the tensor that is made of its pixels."""

import io
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from core.image_cost import Cost, inspect
from core.pixels import decode
from engine.decoder_process import SECONDS, STORED_SECONDS, DecoderProcess

DECODER_PROCESS = DecoderProcess()  # decodes all costly images of this process, one at a time


@dataclass(frozen=True, eq=False)
class DecodedImage:
    view: Tensor  # (views, 3, s, s)
    small_form: bytes | None = None  # a PNG of the decoded pixels, to be stored beside a costly image


@dataclass(frozen=True, eq=False)
class EncodedImage:
    data: bytes
    short_side: int  # the image may be decoded smaller, as long as its shorter side has this many pixels
    max_pixels: int
    view: Callable[[Image.Image], Tensor]
    stored: bool = False  # accepted earlier, under the limits of that time
    keep_small_form: bool = False  # if it is costly to decode

    def cost(self) -> Cost:
        """Raises ImageTooCostly."""
        inspection = inspect(self.data)
        if not self.stored:
            inspection.require_affordable(self.max_pixels)
        return inspection.cost

    def decode(self) -> DecodedImage:
        return DecodedImage(self.view(decode(self.data, short_side=self.short_side, max_pixels=self.max_pixels)))

    def decode_costly(
        self, process: DecoderProcess = DECODER_PROCESS, abandoned: Callable[[], bool] = lambda: False
    ) -> DecodedImage:
        """Decode in another process. Raises Abandoned as soon as `abandoned` says so."""
        image = process.decode(
            self.data,
            short_side=self.short_side,
            max_pixels=self.max_pixels,
            seconds=STORED_SECONDS if self.stored else SECONDS,
            abandoned=abandoned,
        )
        return DecodedImage(self.view(image), _png(image) if self.keep_small_form else None)


def decode_now(image: EncodedImage) -> DecodedImage:
    """Decode in the calling thread, whatever it costs. Raises ImageError."""
    return image.decode_costly() if image.cost() is Cost.COSTLY else image.decode()


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
