"""CUB-200-2011: 100 base classes, then 10 sessions of 10 classes and 5 shots, as its split files list them.

The folder holds `train/<class>/` and `test/<class>/`, or the original's single `images/<class>/`, and beside
them `split/session_t.txt` (the training images of session t) and `split/test_t.txt` (the test images that
session t adds), t = 1, 2, … A class folder is named `001.Black_footed_Albatross`. Of a path in a list only
its last two parts are used, so the published lists work unchanged.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from bench.datasets.files import file_image, images_in, read_lines, require_folder
from bench.datasets.session_split import draw_shots, without
from bench.datasets.stream import DataError, DatasetImage, Session, Stream


def load(root: Path, draw: int | None = None, seed: int = 0) -> Stream:
    """The standard stream; `draw` selects other shots for its few-shot sessions."""
    require_folder(root, "train/, test/ and split/ of CUB-200")
    train, test = _image_folders(root)
    split = require_folder(root / "split", "session_1.txt, test_1.txt and so on")
    sessions = [
        Session(
            train=_listed(root, train, split / f"session_{number}.txt"),
            test=_listed(root, test, split / f"test_{number}.txt"),
        )
        for number in _session_numbers(split)
    ]
    if draw is not None:
        sessions[1:] = [_redrawn(root, session, seed, draw) for session in sessions[1:]]
    return Stream("cub200", _class_names(sessions), tuple(sessions))


def _image_folders(root: Path) -> tuple[Path, Path]:
    whole, train, test = root / "images", root / "train", root / "test"
    if whole.is_dir() and not train.is_dir():
        return whole, whole
    return require_folder(train, "the training images"), require_folder(test, "the test images")


def _session_numbers(split: Path) -> range:
    """1, 2, … for as many files as there are. Raises DataError at a gap: a file was lost."""
    names = (re.fullmatch(r"session_([1-9][0-9]*)\.txt", entry.name) for entry in split.iterdir())
    numbers = {int(name[1]) for name in names if name}
    expected = range(1, max(numbers, default=1) + 1)
    lost = sorted(set(expected) - numbers)
    if lost:
        raise DataError(f"{split / f'session_{lost[0]}.txt'} is missing; sessions count from 1 without gaps")
    return expected


def _listed(root: Path, folder: Path, listing: Path) -> tuple[DatasetImage, ...]:
    images = []
    for line in read_lines(listing):
        file = folder.joinpath(*PurePosixPath(line).parts[-2:])
        if not file.is_file():
            raise DataError(f"{listing} names {line}, but {file} does not exist; add the missing images")
        images.append(file_image(root, file, class_id=int(_match_class(file.parent.name)[1]) - 1))
    return tuple(images)


def _match_class(folder: str) -> re.Match[str]:
    match = re.fullmatch(r"(0*[1-9][0-9]*)\.(.+)", folder)
    if match is None:
        raise DataError(
            f"class folder {folder!r} does not begin with its number, for example 001.Black_footed_Albatross"
        )
    return match


def _class_names(sessions: Iterable[Session]) -> dict[int, str]:
    names: dict[int, str] = {}
    for image in (image for session in sessions for image in session.train + session.test):
        name = _match_class(PurePosixPath(image.key).parent.name)[2].replace("_", " ")
        if names.setdefault(image.class_id, name) != name:
            raise DataError(f"two class folders have number {image.class_id + 1}: {name!r} is the second")
    return names


def _redrawn(root: Path, session: Session, seed: int, draw: int) -> Session:
    """As many other shots per class, never a test image: the original layout has both in one folder."""
    shots = Counter(image.class_id for image in session.train)
    folders = {image.class_id: (root / image.key).parent for image in session.train}
    drawn: list[DatasetImage] = []
    for class_id, folder in folders.items():
        pool = without([file_image(root, file, class_id) for file in images_in(folder)], session.test)
        drawn += draw_shots(pool, shots[class_id], seed=seed, draw=draw)
    return Session(train=tuple(drawn), test=session.test)
