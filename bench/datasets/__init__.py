"""The data sets, each as one `Stream`: a base session, then few-shot sessions of new classes.

`load` reads lists and names. The bytes of an image are read only when a method needs them.
"""

from collections.abc import Callable
from pathlib import Path

from bench.datasets import cifar100, cub200, folder, grocery, miniimagenet, shapes
from bench.datasets.pseudo_incremental import carve
from bench.datasets.stream import DataError, DatasetImage, Session, Stream

_FROM_FILES: dict[str, Callable[[Path, int | None, int], Stream]] = {
    "cub200": cub200.load,
    "cifar100": cifar100.load,
    "miniimagenet": miniimagenet.load,
    "grocery": grocery.load,
    "folder": folder.load,
}
DATASETS = (*_FROM_FILES, "shapes")

__all__ = ["DATASETS", "DataError", "DatasetImage", "Session", "Stream", "carve", "load"]


def load(dataset: str, root: Path | None = None, *, draw: int | None = None, seed: int = 0) -> Stream:
    """A data set as a stream; `root` is the folder of its files, which `shapes` does not need.

    Without `draw` the shots are the standard ones; a number selects another random draw from the training images of
    the same classes. The base session and all test images stay the same.
    """
    if dataset not in DATASETS:
        raise DataError(f"there is no data set {dataset!r}; there are {', '.join(DATASETS)}")
    if dataset == "shapes":
        return shapes.load(draw, seed)
    if root is None:
        where = f" ({miniimagenet.SOURCE})" if dataset == "miniimagenet" else ""
        raise DataError(f"{dataset} is read from files; give their folder with --data{where}")
    return _FROM_FILES[dataset](root, draw, seed)
