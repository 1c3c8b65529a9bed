"""The sample images are those that the script draws."""

from pathlib import Path

import numpy as np
from PIL import Image

from docs.draw_samples import FOLDER, SHOTS, TAUGHT, files


def test_the_files_are_the_drawn_ones() -> None:
    """Run `python -m docs.draw_samples` after a change. JPEG moves a pixel by some levels."""
    drawn = files()

    assert {path.relative_to(FOLDER) for path in FOLDER.rglob("*.*")} == set(drawn)
    assert {path for path, image in drawn.items() if _difference(FOLDER / path, image) > 4} == set()


def test_the_images_of_a_class_differ() -> None:
    """Five copies of one image would teach nothing."""
    drawn = files()

    pairs = [(Path(name, f"{one}.jpg"), Path(name, f"{one + 1}.jpg")) for name in TAUGHT for one in range(1, SHOTS)]
    assert min(_apart(drawn[one], drawn[other]) for one, other in pairs) > 20


def test_they_are_small() -> None:
    """Everybody who clones the repository gets them."""
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.jpg")) < 300_000


def _difference(file: Path, drawn: Image.Image) -> float:
    with Image.open(file) as stored:
        return _apart(stored, drawn)


def _apart(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of the pixels, in levels."""
    return float(np.abs(np.asarray(one, np.int16) - np.asarray(other, np.int16)).mean())
