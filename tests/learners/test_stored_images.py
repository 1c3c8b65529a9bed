"""Stored images show the same views to every process, whichever form of them is decoded."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from core.images import MAX_PIXELS, Framing
from engine.decoder import Decoder
from learners.stored_images import encoded, stored_encoded, stored_views, views_of
from store.classes import StoredImage, digest

FRAMING = Framing(56)
SECONDS = 60.0


def painted(width: int, height: int, name: str, **options: Any) -> bytes:
    """An image of waves, no two parts of which are alike."""
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    waves = [x * 255 // width + 0 * y, (x * y // 97) % 256, y * 255 // height + 0 * x]
    buffer = io.BytesIO()
    Image.fromarray(np.stack(waves, axis=2).astype(np.uint8)).save(buffer, name, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("width", "height", "name", "options"),
    [
        (3_301, 2_903, "PNG", {"compress_level": 1}),
        (2_903, 3_301, "TIFF", {"compression": "tiff_lzw"}),
        (2_203, 2_001, "WEBP", {"quality": 50, "method": 0}),
        (170_000, 60, "PNG", {"compress_level": 1}),
    ],
    ids=["png", "tiff", "webp", "strip"],
)
def test_a_stored_image_shows_the_same_views_from_its_small_form(
    width: int, height: int, name: str, options: dict[str, Any]
) -> None:
    """Bit for bit, whether it was kept with a small form or comes from the time before there were any."""
    data, decoder = painted(width, height, name, **options), Decoder()
    sent = decoder.decode([data], lambda one: encoded(one, FRAMING, 3, MAX_PIXELS, keep_small_form=True))
    (new,) = sent.result(SECONDS)
    assert new.small_form is not None

    stored = [StoredImage(1, digest(data), data, form) for form in (new.small_form, None)]
    again = decoder.decode(stored, lambda one: stored_encoded(one, FRAMING, 3)).result(SECONDS)

    assert len(new.small_form) < 1_500_000
    assert [torch.equal(new.view, image.view) for image in again] == [True, True]
    assert torch.equal(new.view, stored_views(stored[0], FRAMING, 3)), "a worker sees the same"


def test_views_do_not_depend_on_who_decodes() -> None:
    """The augmented views of an image are drawn from a seed of its own."""
    data = painted(90, 70, "PNG")

    (image,) = Decoder().decode([data], lambda one: encoded(one, FRAMING, 2, MAX_PIXELS)).result(SECONDS)

    assert torch.equal(image.view, views_of(data, FRAMING, augmented=2))
