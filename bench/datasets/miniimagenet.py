"""miniImageNet: 60 base classes, then 8 sessions of 5 classes and 5 shots.

Two layouts. Either `split/train.csv` and `split/test.csv` (header `filename,label`) with all the images in
`images/`, classes in order of first appearance in train.csv; or class folders, `train/<class>/` and
`test/<class>/`, classes in the order of their names. For the shots see `hundred_classes`.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

from bench.datasets import hundred_classes
from bench.datasets.files import class_folders, file_image, images_in, read_lines, require_folder
from bench.datasets.stream import DataError, DatasetImage, Stream

Labelled = list[tuple[Path, str]]
SOURCE = (
    "its images are a part of ImageNet, image-net.org; github.com/icoz69/CEC-CVPR2021 links to an archive of them, and "
    "github.com/xyutao/fscil has the lists of the sessions"
)


def load(root: Path, draw: int | None = None, seed: int = 0) -> Stream:
    """The standard stream; `draw` selects other shots for its few-shot sessions."""
    require_folder(root, f"split/ and images/, or train/ and test/, of miniImageNet ({SOURCE})")
    train, test = _from_tables(root) if (root / "split" / "train.csv").is_file() else _from_folders(root)
    ids = {label: number for number, label in enumerate(dict.fromkeys(label for _, label in train))}
    names = {number: label for label, number in ids.items()}
    images = [_images(root, part, ids) for part in (train, test)]
    return hundred_classes.stream_of("miniimagenet", names, *images, split=root / "split", draw=draw, seed=seed)


def _from_tables(root: Path) -> tuple[Labelled, Labelled]:
    folder = require_folder(root / "images", "the images that split/train.csv names")
    return _table(root / "split" / "train.csv", folder), _table(root / "split" / "test.csv", folder)


def _table(file: Path, folder: Path) -> Labelled:
    table = csv.DictReader(read_lines(file))
    if table.fieldnames is None or not {"filename", "label"} <= set(table.fieldnames):
        raise DataError(f"{file} does not begin with the header filename,label")
    labelled = [(folder / Path(row["filename"]).name, row["label"]) for row in table]
    for image, label in labelled:
        if not label:
            raise DataError(f"{file} gives {image.name} no label")
        if not image.is_file():
            raise DataError(f"{file} names {image.name}, but {image} does not exist; add the missing images")
    return labelled


def _from_folders(root: Path) -> tuple[Labelled, Labelled]:
    train = require_folder(root / "train", "a folder of training images for every class")
    test = require_folder(root / "test", "a folder of test images for every class")
    return _tree(train), _tree(test)


def _tree(folder: Path) -> Labelled:
    return [(file, label.name) for label in class_folders(folder) for file in images_in(label)]


def _images(root: Path, labelled: Labelled, ids: Mapping[str, int]) -> list[DatasetImage]:
    unknown = sorted({label for _, label in labelled} - set(ids))
    if unknown:
        raise DataError(f"miniimagenet tests classes without a training image: {', '.join(unknown)}")
    return [file_image(root, file, ids[label]) for file, label in labelled]
