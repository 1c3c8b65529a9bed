"""Cutting images into sessions: the steps that the data sets share."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

from bench.datasets.stream import DataError, DatasetImage, Session

Item = TypeVar("Item")
Pools = Mapping[int, Sequence[DatasetImage]]  # images by class id


def random_for(*names: object) -> Random:
    """One generator for each purpose, so that drawing for one class never changes another's draw."""
    return Random("/".join(map(str, names)))


def by_class(images: Iterable[DatasetImage]) -> dict[int, list[DatasetImage]]:
    pools: dict[int, list[DatasetImage]] = {}
    for image in images:
        pools.setdefault(image.class_id, []).append(image)
    return pools


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Runs of `size` items; the last may be shorter."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def draw_shots(pool: Sequence[DatasetImage], shots: int, *, seed: int, draw: int | None) -> list[DatasetImage]:
    """`shots` images of one class. Every (seed, draw) is another draw; None is the standard one."""
    class_id = pool[0].class_id if pool else None
    if len(pool) < shots:
        raise DataError(f"class {class_id} has {len(pool)} training images, fewer than the {shots} shots of a session")
    return random_for(seed, "shots", draw, class_id).sample(pool, shots)


def hold_out(pool: Sequence[DatasetImage], share: float, *, seed: int) -> tuple[list[DatasetImage], list[DatasetImage]]:
    """One class in two parts: images to train on, and images held out to test on."""
    size = max(1, round(len(pool) * share))
    held = random_for(seed, "held out", pool[0].class_id).sample(pool, size)
    return without(pool, held), held


def without(pool: Sequence[DatasetImage], removed: Iterable[DatasetImage]) -> list[DatasetImage]:
    gone = {image.key for image in removed}
    return [image for image in pool if image.key not in gone]


def cut(groups: Iterable[Iterable[int]], train: Pools, test: Pools) -> tuple[Session, ...]:
    """One session for every group of classes."""
    return tuple(Session(train=_gather(group, train), test=_gather(group, test)) for group in groups)


def _gather(group: Iterable[int], pools: Pools) -> tuple[DatasetImage, ...]:
    return tuple(image for class_id in group for image in pools[class_id])
