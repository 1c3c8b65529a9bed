"""Stored images as sessions learn from them: views, and the trunk's activations of the views.

The augmented views of an image are drawn with a seed from its own digest, so every process makes the same ones. An
image that is costly to decode is stored with a small form of it, which gives the same views.
"""

from collections.abc import Sequence
from functools import partial

import torch
from PIL import Image
from torch import Tensor

from core.images import MAX_PIXELS, Framing, views
from core.progress import Check, unchecked
from core.views import LabelledViews
from engine.compiled_module import CompiledModule
from engine.decoding import EncodedImage, decode_now
from engine.map_ahead import map_ahead
from store.classes import StoredImage, digest

AUGMENTED = 8
SHARPNESS = 2  # times the framing's short side
IMAGES_AT_ONCE = 4  # in nine views each: enough to fill the cores, few enough to answer others in between
VIEWS_AT_ONCE = IMAGES_AT_ONCE * (1 + AUGMENTED)

UNLIMITED = 2**31  # pixels: a stored image was within the limit when it was uploaded


def views_of(data: bytes, framing: Framing, *, augmented: int = AUGMENTED, max_pixels: int = MAX_PIXELS) -> Tensor:
    """The centre view of an image and its augmented ones, (1 + augmented, 3, s, s) bytes."""
    return decode_now(encoded(data, framing, augmented, max_pixels)).view


def stored_views(stored: StoredImage, framing: Framing, augmented: int) -> Tensor:
    """As `views_of` the image as it was uploaded, whatever it costs: it was within the limits then."""
    return decode_now(stored_encoded(stored, framing, augmented)).view


def encoded(
    data: bytes, framing: Framing, augmented: int, max_pixels: int, *, keep_small_form: bool = False
) -> EncodedImage:
    """An image as it was uploaded, to be decoded to its views."""
    view = partial(own_views, framing=framing, sha256=digest(data), augmented=augmented)
    return EncodedImage(data, sharp_side(framing), max_pixels, view, keep_small_form=keep_small_form)


def stored_encoded(stored: StoredImage, framing: Framing, augmented: int) -> EncodedImage:
    """A stored image, to be decoded to the same views."""
    view = partial(own_views, framing=framing, sha256=stored.sha256, augmented=augmented)
    return EncodedImage(stored.scaled or stored.data, sharp_side(framing), UNLIMITED, view, stored=True)


def sharp_side(framing: Framing) -> int:
    """The short side to decode at, so that small augmented crops stay sharp."""
    return SHARPNESS * framing.short_side


def own_views(image: Image.Image, framing: Framing, sha256: str, augmented: int) -> Tensor:
    """The views of an image that was decoded at the sharp side; `sha256` is of its bytes as they were uploaded."""
    return views(image, framing, augmented, torch.Generator().manual_seed(int(sha256[:14], 16)))


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
    check: Check = unchecked,
) -> LabelledViews | None:
    """Trunk activations of stored images, (n, v, …); None if there are no images."""
    if not images:
        return None
    parts: list[Tensor] = []
    some: list[Tensor] = []
    for one in map_ahead(partial(stored_views, framing=framing, augmented=augmented), images, IMAGES_AT_ONCE):
        some.append(one)  # (v, 3, s, s)
        if len(some) == IMAGES_AT_ONCE or len(parts) * IMAGES_AT_ONCE + len(some) == len(images):
            check()
            batch = torch.stack(some)
            parts.append(trunk(batch.flatten(0, 1)).unflatten(0, batch.shape[:2]))
            some = []
    return LabelledViews(torch.cat(parts), torch.tensor([stored.class_id for stored in images]))
