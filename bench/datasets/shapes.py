"""Drawn shapes: a data set that needs no files, for a first try and for tests.

Twenty classes, each a shape with a texture and a colour, at any place, size and angle on a noisy background.
No shape, texture or colour belongs to one class alone, and the base session shows every one of them. Ten base
classes with 20 images each, then 5 sessions of 2 classes and 5 shots; 10 test images for every class.
"""

from functools import partial
from io import BytesIO
from math import cos, pi, sin
from random import Random

from PIL import Image, ImageDraw

from bench.datasets.session_split import by_class, chunks, cut, draw_shots, random_for
from bench.datasets.stream import DatasetImage, Stream

CLASSES, BASE_CLASSES, WAYS, SHOTS = 20, 10, 2, 5
TRAIN, TEST = 20, 10  # images of every class
SIDE = 96
SPRITE = 160  # drawn large and scaled down, which smooths the edges

Point = tuple[float, float]
Colour = tuple[int, int, int]


def _corners(count: int, notch: float = 1.0) -> list[Point]:
    """Corners on the unit circle, every second one at radius `notch`."""
    turns = [(2 * pi * corner / count, notch if corner % 2 else 1.0) for corner in range(count)]
    return [(radius * cos(angle), radius * sin(angle)) for angle, radius in turns]


def _cross() -> list[Point]:
    """The three corners of one quarter, rotated four times."""
    corners = [turn * corner / 3.2 for turn in (1, -1j, -1, 1j) for corner in (1 + 3j, 1 + 1j, 3 + 1j)]
    return [(corner.real, corner.imag) for corner in corners]


SHAPES: dict[str, list[Point]] = {
    "disc": _corners(48),
    "square": _corners(4),
    "triangle": _corners(3),
    "star": _corners(10, notch=0.45),
    "cross": _cross(),
}
TEXTURES = ("plain", "striped", "dotted", "chequered")
COLOURS: dict[str, Colour] = {
    "red": (205, 50, 45),
    "yellow": (215, 185, 40),
    "green": (45, 150, 70),
    "blue": (50, 80, 200),
}


def load(draw: int | None = None, seed: int = 0) -> Stream:
    """The images of a seed; `draw` selects other shots for the few-shot sessions."""
    train = by_class(_images("train", TRAIN, seed))
    test = by_class(_images("test", TEST, seed))
    few = {c: draw_shots(train[c], SHOTS, seed=seed, draw=draw) for c in range(BASE_CLASSES, CLASSES)}
    groups = [range(BASE_CLASSES), *chunks(range(BASE_CLASSES, CLASSES), WAYS)]
    names = {class_id: " ".join(_traits(class_id)) for class_id in range(CLASSES)}
    return Stream("shapes", names, cut(groups, train | few, test))


def _images(part: str, count: int, seed: int) -> list[DatasetImage]:
    return [_image(f"seed {seed}/{part}/{c}/{number}", c) for c in range(CLASSES) for number in range(count)]


def _image(key: str, class_id: int) -> DatasetImage:
    return DatasetImage(key=key, class_id=class_id, read=partial(_png, key, class_id))


def _traits(class_id: int) -> tuple[str, str, str]:
    """Colour, texture and shape. 5 shapes and 4 textures have no common divisor: 20 classes are 20 pairs."""
    shape, texture = class_id % len(SHAPES), class_id % len(TEXTURES)
    return list(COLOURS)[(shape + texture) % len(COLOURS)], TEXTURES[texture], list(SHAPES)[shape]


def _png(key: str, class_id: int) -> bytes:
    """The key seeds everything, so that an image is the same whenever it is drawn."""
    rng = random_for(key)
    image = _background(rng)
    sprite = _sprite(*_traits(class_id), rng)
    image.paste(sprite, (rng.randint(0, SIDE - sprite.width), rng.randint(0, SIDE - sprite.height)), sprite)
    encoded = BytesIO()
    image.save(encoded, format="PNG")
    return encoded.getvalue()


def _background(rng: Random) -> Image.Image:
    plain = Image.new("RGB", (SIDE, SIDE), _shade((130, 130, 130), 70, rng))
    pen = ImageDraw.Draw(plain)
    for _ in range(4):  # clutter, so that not every edge belongs to a shape
        ends = [(rng.randint(0, SIDE), rng.randint(0, SIDE)) for _ in range(2)]
        pen.line(ends, fill=_shade((130, 130, 130), 100, rng), width=rng.randint(1, 6))
    noise = Image.frombytes("RGB", (SIDE, SIDE), rng.randbytes(3 * SIDE * SIDE))
    return Image.blend(plain, noise, 0.2)


def _sprite(colour: str, texture: str, shape: str, rng: Random) -> Image.Image:
    """The shape in its texture, rotated and scaled, on a transparent background."""
    sprite = _textured(texture, _shade(COLOURS[colour], 30, rng))
    outline = Image.new("L", (SPRITE, SPRITE))
    middle = SPRITE / 2
    ImageDraw.Draw(outline).polygon([(middle + x * middle, middle + y * middle) for x, y in SHAPES[shape]], fill=255)
    sprite.putalpha(outline)
    side = rng.randint(SIDE * 2 // 5, SIDE * 4 // 5)
    turned = sprite.rotate(rng.uniform(0, 360), Image.Resampling.BICUBIC)
    return turned.resize((side, side), Image.Resampling.LANCZOS)


def _textured(texture: str, colour: Colour) -> Image.Image:
    """A square of the colour, marked in a dark tone of it."""
    square = Image.new("RGB", (SPRITE, SPRITE), colour)
    pen = ImageDraw.Draw(square)
    dark = (colour[0] // 4, colour[1] // 4, colour[2] // 4)
    step = SPRITE // 8
    for row in range(8):
        for column in range(8):
            left, top = column * step, row * step
            if texture == "dotted":
                pen.ellipse((left + 3, top + 3, left + step - 4, top + step - 4), fill=dark)
            elif (texture == "striped" and row % 2) or (texture == "chequered" and (row + column) % 2):
                pen.rectangle((left, top, left + step - 1, top + step - 1), fill=dark)
    return square


def _shade(colour: Colour, spread: int, rng: Random) -> Colour:
    red, green, blue = (min(255, max(0, part + rng.randint(-spread, spread))) for part in colour)
    return red, green, blue
