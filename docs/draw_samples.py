"""Draws the images of `console/static/samples`: `python -m docs.draw_samples`.

Three classes of five images each, one more image of each class, and one of a class that nobody teaches. Every image has
its own background, place, size, angle and colours. The same files come out of every run.
"""

import colorsys
import math
import random
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw

FOLDER = Path(__file__).parents[1] / "console" / "static" / "samples"
SHOTS = 5
SIDE = 240
SEED = 31  # none of the shots is an outlier of its class, and the new images are clear cases
FINE = 3  # drawn this many times larger, then scaled down: smooth edges

Point = tuple[float, float]
Colour = tuple[int, int, int]


class Pen:
    """Draws in the object's own coordinates: -1 to 1, turned, scaled and moved to its place in the image."""

    def __init__(self, image: Image.Image, chance: random.Random) -> None:
        self.draw = ImageDraw.Draw(image)
        side = image.width
        self.size = side * chance.uniform(0.26, 0.36)
        self.centre = (side * chance.uniform(0.42, 0.58), side * chance.uniform(0.44, 0.56))
        self.angle = math.radians(chance.uniform(-14, 14))

    def at(self, point: Point) -> Point:
        x, y = point
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return (
            self.centre[0] + self.size * (x * cos - y * sin),
            self.centre[1] + self.size * (x * sin + y * cos),
        )

    def polygon(self, points: list[Point], colour: Colour) -> None:
        self.draw.polygon([self.at(point) for point in points], fill=colour)

    def line(self, points: list[Point], colour: Colour, width: float) -> None:
        self.draw.line([self.at(point) for point in points], fill=colour, width=round(width * self.size), joint="curve")

    def ellipse(self, centre: Point, radii: Point, colour: Colour) -> None:
        self.polygon(arc(centre, radii, 0, 360), colour)


def arc(centre: Point, radii: Point, start: float, end: float) -> list[Point]:
    """Points on an ellipse, from one angle in degrees to another."""
    steps = [math.radians(start + (end - start) * step / 60) for step in range(61)]
    return [(centre[0] + radii[0] * math.cos(angle), centre[1] + radii[1] * math.sin(angle)) for angle in steps]


def fish(pen: Pen, colour: Colour, dark: Colour, light: Colour) -> None:
    pen.polygon([(0.55, 0), (1.15, -0.55), (1.0, 0), (1.15, 0.55)], dark)
    pen.polygon([(-0.2, -0.4), (0.2, -0.8), (0.45, -0.3)], dark)
    pen.polygon([(-0.1, 0.4), (0.2, 0.7), (0.35, 0.3)], dark)
    pen.ellipse((-0.1, 0), (0.85, 0.5), colour)
    pen.line(arc((-0.6, 0), (0.3, 0.42), -60, 60), dark, 0.05)
    for x in (0.05, 0.3, 0.52):
        pen.line(arc((x, 0), (0.12, 0.2), -70, 70), light, 0.04)
    pen.ellipse((-0.62, -0.12), (0.1, 0.1), (250, 250, 250))
    pen.ellipse((-0.64, -0.12), (0.05, 0.05), (20, 20, 20))


def house(pen: Pen, colour: Colour, dark: Colour, light: Colour) -> None:
    pen.polygon([(0.4, -0.95), (0.65, -0.95), (0.65, -0.2), (0.4, -0.2)], dark)
    pen.polygon([(-0.8, -0.15), (0.8, -0.15), (0.8, 0.9), (-0.8, 0.9)], light)
    pen.polygon([(-1.05, -0.1), (0, -0.95), (1.05, -0.1)], colour)
    pen.polygon([(-0.18, 0.3), (0.18, 0.3), (0.18, 0.9), (-0.18, 0.9)], dark)
    for x in (-0.52, 0.52):
        pen.polygon([(x - 0.17, 0.15), (x + 0.17, 0.15), (x + 0.17, 0.5), (x - 0.17, 0.5)], (190, 225, 245))
        pen.line([(x, 0.15), (x, 0.5)], dark, 0.04)
        pen.line([(x - 0.17, 0.32), (x + 0.17, 0.32)], dark, 0.04)


def mug(pen: Pen, colour: Colour, dark: Colour, light: Colour) -> None:
    pen.line(arc((0.6, 0.05), (0.42, 0.42), -95, 95), dark, 0.16)
    pen.polygon([(-0.65, -0.7), (0.65, -0.7), (0.58, 0.75), (-0.58, 0.75)], colour)
    pen.ellipse((0, 0.75), (0.58, 0.14), colour)
    pen.ellipse((0, -0.7), (0.65, 0.17), light)
    pen.ellipse((0, -0.68), (0.54, 0.11), (84, 52, 32))
    pen.polygon([(-0.62, -0.1), (0.62, -0.1), (0.61, 0.2), (-0.6, 0.2)], light)


def umbrella(pen: Pen, colour: Colour, dark: Colour, light: Colour) -> None:
    pen.line([(0, -0.9), (0, 0.75)], dark, 0.07)
    pen.line(arc((0.17, 0.75), (0.17, 0.17), 0, 180), dark, 0.07)
    pen.polygon(arc((0, 0.1), (1.1, 0.95), 180, 360), colour)
    for x in (-0.73, 0.0, 0.73):
        pen.ellipse((x, 0.1), (0.365, 0.12), dark)
    pen.polygon([(0, -0.85), (-0.36, 0.1), (0.36, 0.1)], light)


OBJECTS: dict[str, Callable[[Pen, Colour, Colour, Colour], None]] = {
    "fish": fish,
    "house": house,
    "mug": mug,
    "umbrella": umbrella,
}
TAUGHT = ("fish", "house", "mug")


def sample(name: str, number: int) -> Image.Image:
    """One image of an object; the number decides all that varies."""
    chance = random.Random(f"{name} {number} {SEED}")
    side = SIDE * FINE
    image = background(side, chance)
    hue = chance.random()
    colours = [shade(hue, 0.75, 0.85), shade(hue, 0.85, 0.5), shade(hue + 0.5, 0.25, 0.97)]
    OBJECTS[name](Pen(image, chance), *colours)
    return image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def background(side: int, chance: random.Random) -> Image.Image:
    """A wall and a floor, each with its own colour, and some spots."""
    hue = chance.random()
    image = Image.new("RGB", (side, side), shade(hue, chance.uniform(0.05, 0.35), chance.uniform(0.75, 0.97)))
    draw = ImageDraw.Draw(image)
    floor = side * chance.uniform(0.6, 0.8)
    draw.rectangle((0, floor, side, side), fill=shade(chance.random(), 0.3, chance.uniform(0.5, 0.8)))
    for _ in range(chance.randint(2, 6)):
        x, y, radius = chance.uniform(0, side), chance.uniform(0, floor), side * chance.uniform(0.02, 0.07)
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=shade(hue, 0.3, chance.uniform(0.6, 0.9)))
    return image


def shade(hue: float, saturation: float, brightness: float) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, saturation, brightness)
    return round(255 * red), round(255 * green), round(255 * blue)


def files() -> dict[Path, Image.Image]:
    """Every sample by its path below the folder."""
    shots = {Path(name, f"{number}.jpg"): sample(name, number) for name in TAUGHT for number in range(1, SHOTS + 1)}
    return shots | {Path(f"new-{name}.jpg"): sample(name, 0) for name in OBJECTS}


def main() -> None:
    for path, image in files().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        image.save(FOLDER / path, "JPEG", quality=85)


if __name__ == "__main__":
    main()
