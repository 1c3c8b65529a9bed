"""Classes that a network tells apart, drawn: a figure and its colours, every picture a little different."""

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


def picture(name: str, seed: int) -> bytes:
    """A JPEG; the same one whenever it is asked for."""
    figure, number = name.split()
    chance = random.Random(f"{name} {seed}")
    ink, paper = COLOURS[int(number)]
    image = Image.new("RGB", (SIDE, SIDE), paper)
    _draw(ImageDraw.Draw(image), figure, ink, chance)
    data = io.BytesIO()
    image.rotate(chance.uniform(-8, 8), fillcolor=paper).save(data, "JPEG", quality=88)
    return data.getvalue()


def shots(name: str) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("shots", (f"{seed}.jpg", picture(name, seed), "image/jpeg")) for seed in range(5)]


def question(names: Iterable[str]) -> str:
    """One request with a picture of each class, none of which was a shot."""
    return json.dumps({"images": [base64.b64encode(picture(name, 100)).decode() for name in names]})


def _draw(draw: ImageDraw.ImageDraw, figure: str, ink: str, chance: random.Random) -> None:
    left, top, size = chance.randint(20, 50), chance.randint(20, 50), chance.randint(140, 170)
    box = (left, top, left + size, top + size)
    middle = (left + size // 2, top + size // 2)
    if figure == "disc":
        draw.ellipse(box, fill=ink)
    elif figure == "stripes":
        for x in range(chance.randint(0, 20), SIDE, 32):
            draw.rectangle((x, 0, x + 14, SIDE), fill=ink)
    elif figure == "checks":
        for x in range(0, SIDE, 64):
            for y in range(0, SIDE, 64):
                draw.rectangle((x, y, x + 31, y + 31), fill=ink)
                draw.rectangle((x + 32, y + 32, x + 63, y + 63), fill=ink)
    elif figure == "triangle":
        draw.polygon([(middle[0], top), (left, box[3]), (box[2], box[3])], fill=ink)
    elif figure == "ring":
        draw.ellipse(box, outline=ink, width=24)
    else:
        draw.line((left, top, box[2], box[3]), fill=ink, width=30)
        draw.line((box[2], top, left, box[3]), fill=ink, width=30)
