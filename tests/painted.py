"""Folders of small pictures that a network can tell apart: each class a colour pattern, each picture its own noise."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 40


def picture(name: str, number: int) -> bytes:
    """The same bytes whenever they are asked for."""
    pattern = _random(name).integers(0, 256, (4, 4, 3))
    noise = _random(f"{name} {number}").normal(0, 25, (SIDE, SIDE, 3))
    pixels = np.kron(pattern, np.ones((SIDE // 4, SIDE // 4, 1))) + noise
    encoded = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(encoded, "PNG")
    return encoded.getvalue()


def paint(folder: Path, classes: Mapping[str, int]) -> Path:
    """A folder for each class, with so many pictures."""
    for name, count in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (folder / name / f"{number}.png").write_bytes(picture(name, number))
    return folder


def _random(key: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))
