"""Any folder of class folders as a stream: a seed shuffles the classes and holds out the test images.

Class ids follow the sorted names of the folders, whatever the seed.
"""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TypedDict

from bench.datasets.data_error import DataError
from bench.datasets.files import class_folders, file_image, images_in, require_folder
from bench.datasets.session_split import Pools, chunks, cut, draw_shots, held_size, hold_out, random_for
from bench.datasets.stream import Stream


class FolderOptions(TypedDict, total=False):
    """Options of a folder; data sets with a published protocol have fixed values."""

    base_classes: int | None
    ways: int
    shots: int
    test_share: float


def load(
    root: Path,
    draw: int | None = None,
    seed: int = 0,
    *,
    base_classes: int | None = None,  # None: half of them
    ways: int = 5,  # the last session takes the remaining classes
    shots: int = 5,
    test_share: float = 0.2,  # of every class, and at least one image
) -> Stream:
    """The stream of a seed; `draw` selects other shots for its few-shot sessions."""
    _check_options(ways, shots, test_share)
    folders = class_folders(require_folder(root, "one folder of images for every class"))
    names = {class_id: folder.name for class_id, folder in enumerate(folders)}
    pools = {c: [file_image(root, file, c) for file in images_in(f)] for c, f in enumerate(folders)}
    _check_images(names, pools, shots, test_share)
    order = random_for(seed, "classes").sample(list(pools), len(pools))
    base = _base_size(root, len(order), base_classes)

    train, test = {}, {}
    for c, pool in pools.items():
        train[c], test[c] = hold_out(pool, test_share, seed=seed)
    few = {c: draw_shots(train[c], shots, seed=seed, draw=draw) for c in order[base:]}
    groups = [order[:base], *chunks(order[base:], ways)]
    return Stream(root.resolve().name, names, cut(groups, train | few, test))


def _check_options(ways: int, shots: int, test_share: float) -> None:
    if ways < 1 or shots < 1:
        raise DataError(f"a session needs at least 1 class and 1 shot, not {ways} classes with {shots} shots")
    if not 0 < test_share < 1:
        raise DataError(f"the test share must be between 0 and 1, not {test_share}")


def _base_size(root: Path, classes: int, asked: int | None) -> int:
    if classes < 2:
        raise DataError(f"{root} has {classes} class folders; a stream needs at least 2")
    size = classes // 2 if asked is None else asked
    if not 1 <= size < classes:
        raise DataError(f"{size} base classes of {classes} is impossible; choose 1 to {classes - 1}")
    return size


def _check_images(names: Mapping[int, str], pools: Pools, shots: int, test_share: float) -> None:
    """Every class needs enough for both uses: the seed decides which classes are new."""
    short = [
        f"{names[class_id]} ({len(pool)})"
        for class_id, pool in pools.items()
        if len(pool) - held_size(len(pool), test_share) < shots
    ]
    if short:
        need = next(n for n in count(shots + 1) if n - held_size(n, test_share) >= shots)
        raise DataError(
            f"too few images in {', '.join(short)}: {shots} shots and the test images need {need} "
            "of every class; add images, remove those folders or choose fewer shots"
        )
