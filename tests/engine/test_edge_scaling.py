"""The graph cuts and scales an image of any size as the service does after decoding it."""

import io
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from core.images import Framing, centre_view
from core.pixels import decode
from engine.edge.scaling import INPUT, scaling_graph

FRAMINGS = (
    Framing(32, crop_ratio=1.0),
    Framing(24, crop_ratio=0.875, resample="bilinear"),
    Framing(30, crop_ratio=0.9),
)


@cache
def session(framing: Framing) -> Any:
    return onnxruntime.InferenceSession(scaling_graph(framing).SerializeToString())


def noise(width: int, height: int) -> Image.Image:
    """The hardest image to scale alike: every pixel differs from its neighbours."""
    generator = np.random.default_rng(width * 10_000 + height)
    return Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))


def png(image: Image.Image) -> bytes:
    encoded = io.BytesIO()
    image.save(encoded, "PNG", compress_level=1)
    return encoded.getvalue()


def difference(image: Image.Image, framing: Framing) -> torch.Tensor:
    """In levels, of each pixel of the view."""
    expected = centre_view(decode(png(image), short_side=framing.short_side), framing)
    (found,) = session(framing).run(None, {INPUT: np.asarray(image)[None]})
    return (torch.from_numpy(found)[0].int() - expected.int()).abs()


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from(FRAMINGS))
@example(1, 1, FRAMINGS[0])
@example(300, 1, FRAMINGS[1])  # longer than eight short sides
@example(32, 32, FRAMINGS[0])  # as large as the view
@example(260, 244, FRAMINGS[1])  # half a pixel is rounded to even
def test_an_image_of_any_size_is_scaled_alike(width: int, height: int, framing: Framing) -> None:
    """Exactly, but for a pixel in a hundred, which is a level away: torch computes the weights in double precision."""
    found = difference(noise(width, height), framing)

    assert int(found.max()) <= 1
    assert float(found.float().mean()) < 0.01


@pytest.mark.parametrize(("width", "height"), [(1001, 1003), (1100, 3001), (700, 1600)])
@pytest.mark.parametrize("framing", FRAMINGS[:2])
def test_a_large_image_is_shrunk_in_the_same_blocks(width: int, height: int, framing: Framing) -> None:
    """First the whole image, if it has more than a megapixel, then the centre; blocks at the end may be smaller."""
    found = difference(noise(width, height), framing)

    assert int(found.max()) <= 1
    assert float(found.float().mean()) < 0.01
