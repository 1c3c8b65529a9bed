"""Drawn classes that a network can distinguish: a figure and its colours, each image a little different."""

import base64
import io
import json
import random
from collections.abc import Iterable

from PIL import Image, ImageDraw

SIDE = 256
FIGURES = ("disc", "stripes", "checks", "triangle", "ring", "cross")
COLOURS = (("crimson", "ivory"), ("navy", "gold"), ("darkgreen", "pink"))
NAMES = [f"{figure} {number}" for number in range(len(COLOURS)) for figure in FIGURES]


def draw(name: str, seed: int) -> bytes:
    """A JPEG; always the same for the same arguments."""
    figure, number = name.split()
    rng = random.Random(f"{name} {seed}")
    ink, paper = COLOURS[int(number)]
    image = Image.new("RGB", (SIDE, SIDE), paper)
    _draw_figure(ImageDraw.Draw(image), figure, ink, rng)
    data = io.BytesIO()
    image.rotate(rng.uniform(-8, 8), fillcolor=paper).save(data, "JPEG", quality=88)
    return data.getvalue()


def shots(name: str) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("shots", (f"{seed}.jpg", draw(name, seed), "image/jpeg")) for seed in range(5)]


def request_of(names: Iterable[str]) -> str:
    """The body of a prediction with one image of each class; none of them was a shot."""
    return json.dumps({"images": [base64.b64encode(draw(name, 100)).decode() for name in names]})


def _draw_figure(pen: ImageDraw.ImageDraw, figure: str, ink: str, rng: random.Random) -> None:
    left, top, size = rng.randint(20, 50), rng.randint(20, 50), rng.randint(140, 170)
    box = (left, top, left + size, top + size)
    middle = (left + size // 2, top + size // 2)
    if figure == "disc":
        pen.ellipse(box, fill=ink)
    elif figure == "stripes":
        for x in range(rng.randint(0, 20), SIDE, 32):
            pen.rectangle((x, 0, x + 14, SIDE), fill=ink)
    elif figure == "checks":
        for x in range(0, SIDE, 64):
            for y in range(0, SIDE, 64):
                pen.rectangle((x, y, x + 31, y + 31), fill=ink)
                pen.rectangle((x + 32, y + 32, x + 63, y + 63), fill=ink)
    elif figure == "triangle":
        pen.polygon([(middle[0], top), (left, box[3]), (box[2], box[3])], fill=ink)
    elif figure == "ring":
        pen.ellipse(box, outline=ink, width=24)
    else:
        pen.line((left, top, box[2], box[3]), fill=ink, width=30)
        pen.line((box[2], top, left, box[3]), fill=ink, width=30)
