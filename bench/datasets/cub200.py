"""CUB-200-2011: 100 base classes, then 10 sessions of 10 classes and 5 shots, exactly as its split files say.

The folder holds `train/<class>/` and `test/<class>/`, or the original's single `images/<class>/`, and beside
them `split/session_t.txt` (the training pictures of session t) and `split/test_t.txt` (the test pictures that
session t adds), t = 1, 2, … A class folder is named `001.Black_footed_Albatross`. Of a path in a list only
its last two parts count, so the published lists serve as they are.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from bench.datasets.errors import DataError
from bench.datasets.files import file_picture, pictures_in, read_lines, require_folder
from bench.datasets.session_split import draw_shots, without
from bench.datasets.stream import Picture, Session, Stream


def load(root: Path, draw: int | None = None, seed: int = 0) -> Stream:
    """The standard stream, or with `draw` the same one with other shots in its few-shot sessions."""
    require_folder(root, "train/, test/ and split/ of CUB-200")
    train, test = _picture_folders(root)
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


def _picture_folders(root: Path) -> tuple[Path, Path]:
    images, train, test = root / "images", root / "train", root / "test"
    if images.is_dir() and not train.is_dir():
        return images, images
    return require_folder(train, "the training pictures"), require_folder(test, "the test pictures")


def _session_numbers(split: Path) -> range:
    """1, 2, … as far as there are files; a gap means a file was lost, so it is refused."""
    names = (re.fullmatch(r"session_([1-9][0-9]*)\.txt", entry.name) for entry in split.iterdir())
    numbers = {int(name[1]) for name in names if name}
    expected = range(1, max(numbers, default=1) + 1)
    lost = sorted(set(expected) - numbers)
    if lost:
        raise DataError(f"{split / f'session_{lost[0]}.txt'} is missing; sessions count from 1 without gaps")
    return expected


def _listed(root: Path, folder: Path, listing: Path) -> tuple[Picture, ...]:
    pictures = []
    for line in read_lines(listing):
        file = folder.joinpath(*PurePosixPath(line).parts[-2:])
        if not file.is_file():
            raise DataError(f"{listing} names {line}, and {file} is not there; complete the pictures")
        pictures.append(file_picture(root, file, class_id=int(_match_class(file.parent.name)[1]) - 1))
    return tuple(pictures)


def _match_class(folder: str) -> re.Match[str]:
    match = re.fullmatch(r"(0*[1-9][0-9]*)\.(.+)", folder)
    if match is None:
        raise DataError(f"class folder {folder!r} does not begin with its number, as 001.Black_footed_Albatross")
    return match


def _class_names(sessions: Iterable[Session]) -> dict[int, str]:
    names: dict[int, str] = {}
    for picture in (picture for session in sessions for picture in session.train + session.test):
        name = _match_class(PurePosixPath(picture.key).parent.name)[2].replace("_", " ")
        if names.setdefault(picture.class_id, name) != name:
            raise DataError(f"two class folders have number {picture.class_id + 1}: {name!r} is the second")
    return names


def _redrawn(root: Path, session: Session, seed: int, draw: int) -> Session:
    """Other shots, as many per class, and never a test picture: the original layout mixes them in."""
    shots = Counter(picture.class_id for picture in session.train)
    folders = {picture.class_id: (root / picture.key).parent for picture in session.train}
    drawn: list[Picture] = []
    for class_id, folder in folders.items():
        pool = without([file_picture(root, file, class_id) for file in pictures_in(folder)], session.test)
        drawn += draw_shots(pool, shots[class_id], seed=seed, draw=draw)
    return Session(train=tuple(drawn), test=session.test)
