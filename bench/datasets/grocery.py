"""Grocery Store, or any folder of class folders with `train/` and `test/`: a seeded partition of the classes.

Of its 81 classes 41 are the base session, then follow 8 sessions of 5 classes and 5 shots. A folder of fewer classes
has fewer sessions, such that at least half of the classes are base classes. Class ids follow the sorted names of the
folders, whatever the seed. (Klasson, Zhang and Kjellström, WACV 2019; github.com/marcusklasson/GroceryStoreDataset.)
"""

from collections.abc import Sequence
from pathlib import Path

from bench.datasets.files import class_folders, file_image, images_in, require_folder
from bench.datasets.session_split import Pools, chunks, cut, draw_shots, random_for
from bench.datasets.stream import DataError, Stream

SESSIONS, WAYS, SHOTS = 8, 5, 5


def load(root: Path, draw: int | None = None, seed: int = 0) -> Stream:
    """The stream of a seed; `draw` selects other shots for its few-shot sessions."""
    require_folder(root, "train/ and test/, each with one folder of images for every class")
    folders = [require_folder(root / part, "one folder of images for every class") for part in ("train", "test")]
    kept = [{folder.name: folder for folder in class_folders(part)} for part in folders]
    names = dict(enumerate(sorted(kept[0])))
    if set(kept[0]) != set(kept[1]):
        only = sorted(set(kept[0]) ^ set(kept[1]))
        raise DataError(f"{root} has {only[0]} in only one of train/ and test/; every class needs both")
    train, test = (
        {c: [file_image(root, file, c) for file in images_in(part[name])] for c, name in names.items()} for part in kept
    )
    empty = [name for c, name in names.items() if not train[c] or not test[c]]
    if empty:
        raise DataError(f"{root} has no image of {empty[0]} in train/ or test/; add images or remove that class")
    groups = _groups(root, train, seed)
    few = {c: draw_shots(train[c], SHOTS, seed=seed, draw=draw) for group in groups[1:] for c in group}
    return Stream(root.resolve().name, names, cut(groups, train | few, test))


def _groups(root: Path, train: Pools, seed: int) -> list[Sequence[int]]:
    """The classes of each session. A class of fewer training images than shots is always a base class."""
    order = random_for(seed, "classes").sample(list(train), len(train))
    order.sort(key=lambda c: len(train[c]) >= SHOTS)  # stable: otherwise as the seed has it
    enough = sum(len(pool) >= SHOTS for pool in train.values())
    sessions = min(SESSIONS, len(order) // 2 // WAYS, enough // WAYS)
    if not sessions:
        raise DataError(
            f"{root} has {len(order)} classes, {enough} of them with {SHOTS} training images; it needs {2 * WAYS}, and "
            f"{WAYS} of them with {SHOTS}"
        )
    base = len(order) - sessions * WAYS
    return [order[:base], *chunks(order[base:], WAYS)]
