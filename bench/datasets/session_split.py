"""Cutting pictures into sessions: the steps that the data sets share."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

from bench.datasets.errors import DataError
from bench.datasets.stream import Picture, Session

Item = TypeVar("Item")
Pools = Mapping[int, Sequence[Picture]]  # pictures by class id


def chance(*names: object) -> Random:
    """A generator of its own for every purpose, so that one class's draw never moves another's."""
    return Random("/".join(map(str, names)))


def by_class(pictures: Iterable[Picture]) -> dict[int, list[Picture]]:
    pools: dict[int, list[Picture]] = {}
    for picture in pictures:
        pools.setdefault(picture.class_id, []).append(picture)
    return pools


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Runs of `size` items; the last may be shorter."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def draw_shots(pool: Sequence[Picture], shots: int, *, seed: int, draw: int | None) -> list[Picture]:
    """`shots` pictures of one class. Every (seed, draw) is another draw; `None` is the standard one."""
    class_id = pool[0].class_id if pool else None
    if len(pool) < shots:
        raise DataError(f"class {class_id} has {len(pool)} training pictures; {shots} shots are asked for")
    return chance(seed, "shots", draw, class_id).sample(pool, shots)


def hold_out(pool: Sequence[Picture], share: float, *, seed: int) -> tuple[list[Picture], list[Picture]]:
    """One class in two: what is left to learn from, and the pictures held out to test on."""
    held = chance(seed, "held out", pool[0].class_id).sample(pool, held_size(len(pool), share))
    return without(pool, held), held


def held_size(pictures: int, share: float) -> int:
    return max(1, round(pictures * share))


def without(pool: Sequence[Picture], removed: Iterable[Picture]) -> list[Picture]:
    gone = {picture.key for picture in removed}
    return [picture for picture in pool if picture.key not in gone]


def cut(groups: Iterable[Iterable[int]], train: Pools, test: Pools) -> tuple[Session, ...]:
    """One session for every group of classes."""
    return tuple(Session(train=_gather(group, train), test=_gather(group, test)) for group in groups)


def _gather(group: Iterable[int], pools: Pools) -> tuple[Picture, ...]:
    return tuple(picture for class_id in group for picture in pools[class_id])
