"""CIFAR-100 from its official Python files: 60 base classes, then 8 sessions of 5 classes and 5 shots.

The folder is `cifar-100-python` (files `train`, `test`, `meta`) or the one that holds it. Classes keep the
order of their labels, as in the literature; for the shots see `hundred_classes`. The files are read whole, 180 MB,
and an image is encoded as PNG when it is read, so that it passes through the same decoder as any other.
"""

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench.datasets import hundred_classes
from bench.datasets.files import require_folder
from bench.datasets.pickles import read_pickle
from bench.datasets.stream import DataError, DatasetImage, Stream

Pixels = npt.NDArray[np.uint8]
SIDE = 32
ROW = 3 * SIDE * SIDE  # one image: the red plane, then green, then blue


def load(root: Path, draw: int | None = None, seed: int = 0) -> Stream:
    """The standard stream; `draw` selects other shots for its few-shot sessions."""
    require_folder(root, "the files train, test and meta of CIFAR-100")
    inner = root / "cifar-100-python"
    folder = inner if inner.is_dir() else root
    names = _class_names(folder / "meta")
    train, test = (_images(folder / part, len(names)) for part in ("train", "test"))
    return hundred_classes.stream_of("cifar100", names, train, test, split=root / "split", draw=draw, seed=seed)


def _class_names(file: Path) -> dict[int, str]:
    names = _entry(read_pickle(file), file, "fine_label_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{file} has no list of class names in 'fine_label_names'; it is not CIFAR-100's")
    return dict(enumerate(names))


def _images(file: Path, classes: int) -> list[DatasetImage]:
    content = read_pickle(file)
    pixels, labels = _entry(content, file, "data"), _entry(content, file, "fine_labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (ROW,):
        raise DataError(f"{file}: 'data' is not an array of bytes with {ROW} for each image")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        raise DataError(f"{file}: 'fine_labels' is not a list of {len(pixels)} labels, one for each image")
    if not all(isinstance(label, int) and 0 <= label < classes for label in labels):
        raise DataError(f"{file}: 'fine_labels' has a label that is not one of 0 to {classes - 1}")
    return [
        DatasetImage(key=f"{file.name}/{row}", class_id=label, read=partial(_png, pixels, row))
        for row, label in enumerate(labels)
    ]


def _entry(content: Any, file: Path, key: str) -> Any:
    if not isinstance(content, dict) or key not in content:
        raise DataError(f"{file} has no {key!r}; it is not a file of CIFAR-100")
    return content[key]


def _png(pixels: Pixels, row: int) -> bytes:
    image = pixels[row].reshape(3, SIDE, SIDE).transpose(1, 2, 0)  # (32, 32, 3)
    encoded = BytesIO()
    Image.fromarray(image).save(encoded, format="PNG")
    return encoded.getvalue()
