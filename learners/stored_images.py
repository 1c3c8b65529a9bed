"""Stored images as sessions learn from them: views, and the trunk's activations of the views.

The augmented views of an image are drawn with a seed from its own digest, so every process makes the same ones. An
image that is costly to decode is stored with a small form of it, which gives the same views.
"""

import io
from collections.abc import Callable, Sequence

import torch
from PIL import Image
from torch import Tensor

from core.image_cost import Cost, inspect
from core.images import MAX_PIXELS, Framing, decode, views
from core.views import LabelledViews
from engine.compiled_module import CompiledModule
from engine.decoder_process import STORED_SECONDS, DecoderProcess
from store.classes import StoredImage, digest

AUGMENTED = 8
SHARPNESS = 2  # times the framing's short side
IMAGES_AT_ONCE = 4  # in nine views each: enough to fill the cores, few enough to answer others in between
VIEWS_AT_ONCE = IMAGES_AT_ONCE * (1 + AUGMENTED)

UNLIMITED = 2**31  # pixels: a stored image was within the limit when it was uploaded

Check = Callable[[], None]  # called between two batches; raises to stop


DECODER = DecoderProcess()  # for all costly images that this process decodes


def views_of(data: bytes, framing: Framing, *, augmented: int = AUGMENTED, max_pixels: int = MAX_PIXELS) -> Tensor:
    """The centre view of an image and its augmented ones, (1 + augmented, 3, s, s) bytes."""
    found, short_side = inspect(data), sharp_side(framing)
    found.require_affordable(max_pixels)
    costly = found.cost is Cost.COSTLY
    image = (DECODER.decode if costly else decode)(data, short_side=short_side, max_pixels=max_pixels)
    return own_views(image, framing, digest(data), augmented)


def stored_views(stored: StoredImage, framing: Framing, augmented: int) -> Tensor:
    """As `views_of` the image as it was uploaded, whatever it costs: it was within the limits then."""
    data, short_side = stored.scaled or stored.data, sharp_side(framing)
    if inspect(data).cost is Cost.COSTLY:
        image = DECODER.decode(data, short_side=short_side, max_pixels=UNLIMITED, seconds=STORED_SECONDS)
    else:
        image = decode(data, short_side=short_side, max_pixels=UNLIMITED)
    return own_views(image, framing, stored.sha256, augmented)


def sharp_side(framing: Framing) -> int:
    """The short side to decode at, so that small augmented crops stay sharp."""
    return SHARPNESS * framing.short_side


def own_views(image: Image.Image, framing: Framing, sha256: str, augmented: int) -> Tensor:
    """The views of an image that was decoded at the sharp side; `sha256` is of its bytes as they were uploaded."""
    return views(image, framing, augmented, torch.Generator().manual_seed(int(sha256[:14], 16)))


def small_form(image: Image.Image) -> bytes:
    """What is stored beside a costly image: every pixel of it as decoded at the sharp side."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def views_to_teach_with(images: int) -> int:
    """How many augmented views teaching makes of each of this many images.

    None: a mean of centre views tells classes apart as well (60.8 % against 60.6 % with eight more, 100 bird species of
    five shots). A single image is measured against its own views, so it needs some.
    """
    return 0 if images > 1 else AUGMENTED


def embed_stored(
    framing: Framing,
    trunk: CompiledModule,
    images: Sequence[StoredImage],
    augmented: int,
    check: Check = lambda: None,
) -> LabelledViews | None:
    """Trunk activations of stored images, (n, v, …); None if there are no images."""
    if not images:
        return None
    parts = []
    for start in range(0, len(images), IMAGES_AT_ONCE):  # the bytes of all views at once would be gigabytes
        check()
        some = [stored_views(stored, framing, augmented) for stored in images[start : start + IMAGES_AT_ONCE]]
        batch = torch.stack(some)  # (b, v, 3, s, s)
        parts.append(trunk(batch.flatten(0, 1)).unflatten(0, batch.shape[:2]))
    return LabelledViews(torch.cat(parts), torch.tensor([stored.class_id for stored in images]))
