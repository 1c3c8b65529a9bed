"""The data sets, each as one `Stream`: a base session, then few-shot sessions of new classes.

`load` reads lists and names. The bytes of an image are read only when a method needs them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from bench.datasets import cifar100, cub200, folder, miniimagenet, shapes
from bench.datasets.data_error import DataError
from bench.datasets.folder import FolderOptions
from bench.datasets.pseudo_incremental import carve
from bench.datasets.stream import DatasetImage, Session, Stream

_PUBLISHED: dict[str, Callable[[Path, int | None, int], Stream]] = {
    "cub200": cub200.load,
    "cifar100": cifar100.load,
    "miniimagenet": miniimagenet.load,
}
DATASETS = (*_PUBLISHED, "folder", "shapes")

__all__ = ["DATASETS", "DataError", "DatasetImage", "Session", "Stream", "carve", "load"]


def load(
    dataset: str,
    root: Path | None = None,  # the folder of its files; not needed for `shapes`
    *,
    draw: int | None = None,
    seed: int = 0,
    **options: Unpack[FolderOptions],
) -> Stream:
    """A data set as a stream.

    Without `draw` the shots are the standard ones; a number selects another random draw from the training images of
    the same classes. The base session and all test images stay the same. The options are those of `folder`.
    """
    if dataset not in DATASETS:
        raise DataError(f"there is no data set {dataset!r}; there are {', '.join(DATASETS)}")
    if options and dataset != "folder":
        raise DataError(f"{dataset} has a fixed protocol; only folder takes {', '.join(options)}")
    if dataset == "shapes":
        return shapes.load(draw, seed)
    if root is None:
        raise DataError(f"{dataset} is read from files; give their folder with --data")
    if dataset == "folder":
        return folder.load(root, draw, seed, **options)
    return _PUBLISHED[dataset](root, draw, seed)
