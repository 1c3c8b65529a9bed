"""The pseudo-incremental protocol: choose settings without reading a test image.

Some base classes act as base classes and others as new ones. All are scored on held-out training images; the test
images of the base session are never read.
"""

from collections.abc import Sequence
from itertools import pairwise

from bench.datasets.session_split import Pools, by_class, cut, draw_shots, hold_out, random_for, without
from bench.datasets.stream import DataError, Session, Stream


def carve(
    base: Session,
    *,
    base_classes: int = 70,
    ways: int = 10,
    sessions: int = 3,
    shots: int = 5,
    held_out: float = 0.2,  # of each pseudo-base class, and at least one image
    seed: int = 0,
) -> Stream:
    """A stream from the training images of `base`.

    If the base session has fewer classes than requested, seven tenths of them are the pseudo-base classes and the
    others are spread evenly over the sessions. Surplus classes are left out.
    """
    if min(base_classes, ways, sessions, shots) < 1:
        raise DataError("base classes, ways, sessions and shots must each be at least 1")
    if not 0 < held_out <= 0.5:
        raise DataError(f"the held-out share must be more than 0 and at most 0.5, not {held_out}")
    pools = by_class(base.train)
    order = random_for(seed, "pseudo classes").sample(sorted(pools), len(pools))
    size, novel = _sizes(len(order), base_classes, ways * sessions)
    old, new = order[:size], order[size : size + novel]
    _check_images(pools, dict.fromkeys(old, 2) | dict.fromkeys(new, shots + 1))

    train, test = {}, {}
    for c in old:
        train[c], test[c] = hold_out(pools[c], held_out, seed=seed)
    for c in new:
        train[c] = draw_shots(pools[c], shots, seed=seed, draw=None)
        test[c] = without(pools[c], train[c])
    names = {class_id: f"class {class_id}" for class_id in old + new}
    return Stream("pseudo", names, cut([old, *_spread(new, sessions)], train, test))


def _sizes(classes: int, base_classes: int, novel_classes: int) -> tuple[int, int]:
    """How many classes are pseudo-base, and how many pseudo-novel."""
    if classes < 2:
        raise DataError(f"a base session of {classes} classes cannot be carved; it needs at least 2")
    if base_classes + novel_classes <= classes:
        return base_classes, novel_classes
    size = max(1, classes * 7 // 10)
    return size, min(novel_classes, classes - size)


def _check_images(pools: Pools, needed: dict[int, int]) -> None:
    short = [f"class {c} has {len(pools[c])} and needs {n}" for c, n in needed.items() if len(pools[c]) < n]
    if short:
        raise DataError(f"too few training images to carve the base session: {', '.join(short)}")


def _spread(classes: Sequence[int], sessions: int) -> list[Sequence[int]]:
    """Sessions whose sizes differ by at most one; fewer sessions if there are fewer classes."""
    count = min(sessions, len(classes))
    ends = [len(classes) * number // count for number in range(count + 1)]
    return [classes[start:end] for start, end in pairwise(ends)]
