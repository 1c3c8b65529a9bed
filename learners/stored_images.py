"""Stored pictures to what sessions learn from: views, and the trunk's activations of them.

The augmented views of a picture are drawn from a seed that is its own digest, so every process that looks at it sees
the same ones. A picture that is costly to decode is stored with a small form of it beside, of which they are the same.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from PIL import Image
from torch import Tensor

from core.images import MAX_PIXELS, Framing, views
from core.views import LabelledViews
from engine.compiled_module import CompiledModule
from engine.decoding import EncodedImage, decode_now
from store.classes import StoredImage, digest

AUGMENTED = 8
SHARPNESS = 2  # times the framing's short side
AT_ONCE = 4  # pictures, in nine views each: enough to fill the cores, little enough to answer others in between
VIEWS_AT_ONCE = AT_ONCE * (1 + AUGMENTED)

STORED = 2**31  # pixels: what is stored was within the limit when it came

Check = Callable[[], None]  # called between two pictures; raises to stop


def views_of(data: bytes, framing: Framing, *, augmented: int = AUGMENTED, max_pixels: int = MAX_PIXELS) -> Tensor:
    """The centre view and the picture's own augmented ones, (1 + augmented, 3, s, s) bytes."""
    return decode_now(encoded(data, framing, augmented, max_pixels)).view


def stored_views(picture: StoredImage, framing: Framing, augmented: int) -> Tensor:
    """As `views_of` the picture as it was sent, whatever it costs: it was within the limits when it came."""
    return decode_now(stored_encoded(picture, framing, augmented)).view


def encoded(
    data: bytes, framing: Framing, augmented: int, max_pixels: int, *, keep_small_form: bool = False
) -> EncodedImage:
    """A picture as it was sent, to be decoded to its views."""
    view = partial(own_views, framing=framing, sha256=digest(data), augmented=augmented)
    return EncodedImage(data, sharp_side(framing), max_pixels, view, keep_small_form=keep_small_form)


def stored_encoded(picture: StoredImage, framing: Framing, augmented: int) -> EncodedImage:
    """A stored picture, to be decoded to the same views."""
    view = partial(own_views, framing=framing, sha256=picture.sha256, augmented=augmented)
    return EncodedImage(picture.scaled or picture.data, sharp_side(framing), STORED, view, stored=True)


def sharp_side(framing: Framing) -> int:
    """The short side to decode at, so that small augmented crops stay sharp."""
    return SHARPNESS * framing.short_side


def own_views(image: Image.Image, framing: Framing, sha256: str, augmented: int) -> Tensor:
    """The views of a picture that was decoded at the sharp side; the digest is that of its bytes as they were sent."""
    return views(image, framing, augmented, torch.Generator().manual_seed(int(sha256[:14], 16)))


def views_to_teach_with(pictures: int) -> int:
    """How many augmented views teaching takes of each of so many pictures.

    None: a mean of centre views tells classes apart as well (60.8 % against 60.6 % with eight more, 100 bird species of
    five shots). A picture that comes alone is measured against its own views, so there have to be some.
    """
    return 0 if pictures > 1 else AUGMENTED


def activations(trunk: CompiledModule, pictures: Sequence[Tensor], check: Check = lambda: None) -> Tensor:
    """Each picture's views through the trunk, (n, v, …)."""
    parts = []
    for start in range(0, len(pictures), AT_ONCE):
        check()
        some = torch.stack(list(pictures[start : start + AT_ONCE]))  # (b, v, 3, s, s)
        parts.append(trunk(some.flatten(0, 1)).unflatten(0, some.shape[:2]))
    return torch.cat(parts)


def seen(
    framing: Framing,
    trunk: CompiledModule,
    pictures: Sequence[StoredImage],
    augmented: int,
    check: Check = lambda: None,
) -> LabelledViews | None:
    """Stored pictures as the tail takes them; None where there is none."""
    if not pictures:
        return None
    parts = []
    for start in range(0, len(pictures), AT_ONCE):  # a few at a time: bytes of all views at once would be gigabytes
        some = pictures[start : start + AT_ONCE]
        looks = [stored_views(picture, framing, augmented) for picture in some]
        parts.append(activations(trunk, looks, check))
    return LabelledViews(torch.cat(parts), torch.tensor([picture.class_id for picture in pictures]))
