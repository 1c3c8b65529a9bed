"""Stored pictures to what sessions learn from: views, and the trunk's activations of them.

The augmented views of a picture are drawn from a seed that is its own digest, so every process that looks at it sees
the same ones.
"""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from core.images import MAX_PIXELS, Framing, decode, views
from core.inference import Forward
from core.views import LabelledViews
from store.classes import Picture

AUGMENTED = 8
SHARPNESS = 2  # decode at this multiple of the framing, so that small augmented crops stay sharp
AT_ONCE = 4  # pictures, in nine views each: enough to fill the cores, little enough to answer others in between
VIEWS_AT_ONCE = AT_ONCE * (1 + AUGMENTED)

STORED = 2**31  # pixels: what is stored was within the limit when it came

Check = Callable[[], None]  # called between two pictures; raises to stop


def views_of(data: bytes, framing: Framing, *, augmented: int = AUGMENTED, max_pixels: int = MAX_PIXELS) -> Tensor:
    """The centre view and the picture's own augmented ones, (1 + augmented, 3, s, s) bytes."""
    image = decode(data, short_side=SHARPNESS * framing.short_side, max_pixels=max_pixels)
    seed = int.from_bytes(hashlib.sha256(data).digest()[:7], "big")
    return views(image, framing, augmented, torch.Generator().manual_seed(seed))


def views_to_teach_with(pictures: int) -> int:
    """How many augmented views teaching takes of each of so many pictures.

    None: a mean of centre views tells classes apart as well (60.8 % against 60.6 % with eight more, 100 bird species of
    five shots). A picture that comes alone is measured against its own views, so there have to be some.
    """
    return 0 if pictures > 1 else AUGMENTED


def activations(trunk: Forward, pictures: Sequence[Tensor], check: Check = lambda: None) -> Tensor:
    """Each picture's views through the trunk, (n, v, …)."""
    parts = []
    for start in range(0, len(pictures), AT_ONCE):
        check()
        some = torch.stack(list(pictures[start : start + AT_ONCE]))  # (b, v, 3, s, s)
        parts.append(trunk(some.flatten(0, 1)).unflatten(0, some.shape[:2]))
    return torch.cat(parts)


def seen(
    framing: Framing, trunk: Forward, pictures: Sequence[Picture], augmented: int, check: Check = lambda: None
) -> LabelledViews | None:
    """Stored pictures as the tail takes them; None where there is none."""
    if not pictures:
        return None
    parts = []
    for start in range(0, len(pictures), AT_ONCE):  # a few at a time: bytes of all views at once would be gigabytes
        some = pictures[start : start + AT_ONCE]
        looks = [views_of(picture.data, framing, augmented=augmented, max_pixels=STORED) for picture in some]
        parts.append(activations(trunk, looks, check))
    return LabelledViews(torch.cat(parts), torch.tensor([picture.class_id for picture in pictures]))
