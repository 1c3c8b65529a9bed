"""The benchmark's data sets, each as one `Stream`: a base session, then few-shot sessions of new classes.

`load` reads lists and names; a picture's bytes are read only when a method asks for them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from bench.datasets import cifar100, cub200, folder, miniimagenet, shapes
from bench.datasets.errors import DataError
from bench.datasets.folder import FolderOptions
from bench.datasets.pseudo import carve
from bench.datasets.stream import Picture, Session, Stream

_PUBLISHED: dict[str, Callable[[Path, int | None, int], Stream]] = {
    "cub200": cub200.load,
    "cifar100": cifar100.load,
    "miniimagenet": miniimagenet.load,
}
DATASETS = (*_PUBLISHED, "folder", "shapes")

__all__ = ["DATASETS", "DataError", "Picture", "Session", "Stream", "carve", "load"]


def load(
    dataset: str,
    root: Path | None = None,  # the folder of its files; `shapes` needs none
    *,
    draw: int | None = None,
    seed: int = 0,
    **options: Unpack[FolderOptions],
) -> Stream:
    """A data set as a stream.

    `draw` None is the standard draw of shots; an integer is another one, from the same classes' training
    pictures, with the base session and all the test pictures unchanged. The options are those of `folder`.
    """
    if dataset not in DATASETS:
        raise DataError(f"there is no data set {dataset!r}; there are {', '.join(DATASETS)}")
    if options and dataset != "folder":
        raise DataError(f"{dataset} has a fixed protocol; {', '.join(options)} can be asked of folder only")
    if dataset == "shapes":
        return shapes.load(draw, seed)
    if root is None:
        raise DataError(f"{dataset} is read from files; say which folder holds them")
    if dataset == "folder":
        return folder.load(root, draw, seed, **options)
    return _PUBLISHED[dataset](root, draw, seed)
