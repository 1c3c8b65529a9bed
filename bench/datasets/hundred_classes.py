"""The protocol of CIFAR-100 and miniImageNet: 60 base classes, then 8 sessions of 5 classes and 5 shots.

The literature's shots are lists published beside its code (session_2.txt … session_9.txt: a line is a row of
CIFAR's training file, or the path of a miniImageNet image). They are not part of this project: if they are in
`split/` of the data set's folder they are the standard draw, otherwise the standard draw is a seeded one of ours.
Classes, base session and test images are the same either way.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from bench.datasets.files import read_lines
from bench.datasets.session_split import Pools, by_class, chunks, cut, draw_shots
from bench.datasets.stream import DataError, DatasetImage, Stream

CLASSES, BASE_CLASSES, WAYS, SHOTS = 100, 60, 5, 5


def stream_of(
    name: str,
    class_names: Mapping[int, str],
    train: Sequence[DatasetImage],
    test: Sequence[DatasetImage],
    *,
    split: Path,
    draw: int | None,
    seed: int,
) -> Stream:
    """Cut whole training and test sets, whose keys end in the name that a published list would use."""
    pools, tests = by_class(train), by_class(test)
    _check(name, class_names, pools, tests)
    groups = chunks(range(BASE_CLASSES, CLASSES), WAYS)
    if draw is None and (split / "session_2.txt").is_file():
        shots = _published(split, groups, pools)
    else:
        shots = {c: draw_shots(pools[c], SHOTS, seed=seed, draw=draw) for group in groups for c in group}
    return Stream(name, class_names, cut([range(BASE_CLASSES), *groups], pools | shots, tests))


def _check(name: str, class_names: Mapping[int, str], train: Pools, test: Pools) -> None:
    if len(class_names) != CLASSES:
        raise DataError(f"{name} has {len(class_names)} classes here; it needs {CLASSES}")
    short = [title for c, title in class_names.items() if len(train.get(c, ())) < SHOTS or not test.get(c)]
    if short:
        raise DataError(
            f"{name} has too few images of {', '.join(short)}; "
            f"every class needs at least {SHOTS} training images and a test image"
        )


def _published(split: Path, groups: Sequence[Sequence[int]], pools: Pools) -> dict[int, list[DatasetImage]]:
    shots: dict[int, list[DatasetImage]] = {}
    for number, group in enumerate(groups, start=2):
        listing = split / f"session_{number}.txt"
        lines = read_lines(listing)
        names = {PurePosixPath(line).name for line in lines}
        found = {c: [shot for shot in pools[c] if PurePosixPath(shot.key).name in names] for c in group}
        if len(lines) != SHOTS * len(group) or any(len(found[c]) != SHOTS for c in group):
            raise DataError(
                f"{listing} is not the list of session {number}: it should name {SHOTS} training images "
                f"of each of the classes {group[0]} to {group[-1]}, and nothing else"
            )
        shots |= found
    return shots
