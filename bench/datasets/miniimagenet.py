"""miniImageNet: 60 base classes, then 8 sessions of 5 classes and 5 shots.

Two layouts. Either `split/train.csv` and `split/test.csv` (header `filename,label`) with all the pictures in
`images/`, classes in order of first appearance in train.csv; or class folders, `train/<class>/` and
`test/<class>/`, classes in the order of their names. For the shots see `hundred`.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

from bench.datasets import hundred
from bench.datasets.errors import DataError
from bench.datasets.files import class_folders, file_picture, pictures_in, read_lines, require_folder
from bench.datasets.stream import Picture, Stream

Labelled = list[tuple[Path, str]]


def load(root: Path, draw: int | None = None, seed: int = 0) -> Stream:
    """The standard stream, or with `draw` the same one with other shots in its few-shot sessions."""
    require_folder(root, "split/ and images/, or train/ and test/, of miniImageNet")
    train, test = _from_tables(root) if (root / "split" / "train.csv").is_file() else _from_folders(root)
    ids = {label: number for number, label in enumerate(dict.fromkeys(label for _, label in train))}
    return hundred.stream_of(
        "miniimagenet",
        {number: label for label, number in ids.items()},
        _pictures(root, train, ids),
        _pictures(root, test, ids),
        split=root / "split",
        draw=draw,
        seed=seed,
    )


def _from_tables(root: Path) -> tuple[Labelled, Labelled]:
    images = require_folder(root / "images", "the pictures that split/train.csv names")
    return _table(root / "split" / "train.csv", images), _table(root / "split" / "test.csv", images)


def _table(file: Path, images: Path) -> Labelled:
    table = csv.DictReader(read_lines(file))
    if table.fieldnames is None or not {"filename", "label"} <= set(table.fieldnames):
        raise DataError(f"{file} does not begin with the header filename,label")
    labelled = [(images / Path(row["filename"]).name, row["label"]) for row in table]
    for picture, label in labelled:
        if not label:
            raise DataError(f"{file} gives {picture.name} no label")
        if not picture.is_file():
            raise DataError(f"{file} names {picture.name}, and {picture} is not there; complete the pictures")
    return labelled


def _from_folders(root: Path) -> tuple[Labelled, Labelled]:
    train = require_folder(root / "train", "a folder of training pictures for every class")
    test = require_folder(root / "test", "a folder of test pictures for every class")
    return _tree(train), _tree(test)


def _tree(folder: Path) -> Labelled:
    return [(file, label.name) for label in class_folders(folder) for file in pictures_in(label)]


def _pictures(root: Path, labelled: Labelled, ids: Mapping[str, int]) -> list[Picture]:
    unknown = sorted({label for _, label in labelled} - set(ids))
    if unknown:
        raise DataError(f"miniimagenet tests classes without a training picture: {', '.join(unknown)}")
    return [file_picture(root, file, ids[label]) for file, label in labelled]
