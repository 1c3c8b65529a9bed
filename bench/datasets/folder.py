"""Any folder of class folders as a stream: a seed shuffles the classes and holds out the test images.

Class ids follow the sorted names of the folders, whatever the seed.
"""

from collections.abc import Mapping
from pathlib import Path

from bench.datasets.files import class_folders, file_image, images_in, require_folder
from bench.datasets.session_split import Pools, chunks, cut, draw_shots, hold_out, random_for
from bench.datasets.stream import DataError, Stream

WAYS, SHOTS = 5, 5
TEST_SHARE = 0.2  # of every class, and at least one image
LEAST = 6  # images of a class: five shots, and the fifth of six that is held out is one


def load(root: Path, draw: int | None = None, seed: int = 0) -> Stream:
    """The stream of a seed; `draw` selects other shots for its few-shot sessions.

    Half of the classes are the base session. The last session takes the remaining classes.
    """
    folders = class_folders(require_folder(root, "one folder of images for every class"))
    names = {class_id: folder.name for class_id, folder in enumerate(folders)}
    pools = {c: [file_image(root, file, c) for file in images_in(f)] for c, f in enumerate(folders)}
    if len(folders) < 2:
        raise DataError(f"{root} has {len(folders)} class folders; a stream needs at least 2")
    _check_images(names, pools)
    order = random_for(seed, "classes").sample(list(pools), len(pools))
    base = len(order) // 2

    train, test = {}, {}
    for c, pool in pools.items():
        train[c], test[c] = hold_out(pool, TEST_SHARE, seed=seed)
    few = {c: draw_shots(train[c], SHOTS, seed=seed, draw=draw) for c in order[base:]}
    groups = [order[:base], *chunks(order[base:], WAYS)]
    return Stream(root.resolve().name, names, cut(groups, train | few, test))


def _check_images(names: Mapping[int, str], pools: Pools) -> None:
    """Every class needs enough for both uses: the seed decides which classes are new."""
    short = [f"{names[class_id]} ({len(pool)})" for class_id, pool in pools.items() if len(pool) < LEAST]
    if short:
        raise DataError(
            f"too few images in {', '.join(short)}: {SHOTS} shots and the test images need {LEAST} "
            "of every class; add images or remove those folders"
        )
