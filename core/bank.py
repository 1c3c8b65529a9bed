"""The prototype bank: everything a version remembers of its classes.

Immutable: learning returns a new bank, so a swap is one assignment and a version never changes under its readers.
It holds classes by id and knows nothing about images, networks or metrics.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NewType

import torch
from torch import Tensor

from core.calibration import Statistics, smoothed_statistics_of, statistics_of
from core.errors import DuplicateClass, UnknownClass, WrongShape
from core.space import SpaceChange

ClassId = NewType("ClassId", int)


@dataclass(frozen=True, eq=False)
class PrototypeBank:
    """Row i of every tensor belongs to `class_ids[i]`. A class that was never taught has no row, so it cannot win."""

    class_ids: tuple[ClassId, ...]
    shots: Tensor  # (K,) how many images the prototype is made of
    initial: Tensor  # (K, M) c0, the prototype when the class was first learned
    copies: Tensor  # (K, B, M) newest last; a class with fewer copies fills the last rows
    held: Tensor  # (K,) how many copies the class has
    statistics: Statistics  # μ, Σ

    @classmethod
    def empty(cls, dim: int, capacity: int = 5) -> "PrototypeBank":
        """A bank without classes for embeddings of `dim` numbers, keeping `capacity` (the paper's B) copies."""
        if capacity < 1:
            raise ValueError(f"a bank keeps at least one copy, not {capacity}")
        vectors = torch.zeros(0, dim)
        copies = torch.zeros(0, capacity, dim)
        counts = torch.zeros(0, dtype=torch.long)
        return cls((), counts, vectors, copies, counts, Statistics(vectors, copies))

    def __len__(self) -> int:
        return len(self.class_ids)

    def __contains__(self, class_id: object) -> bool:
        return class_id in self._row

    @property
    def dim(self) -> int:
        return self.initial.shape[1]

    @property
    def capacity(self) -> int:
        return self.copies.shape[1]

    @property
    def prototypes(self) -> Tensor:
        """The newest copy of every class, (K, M)."""
        return self.copies[:, -1]

    @property
    def bytes_per_class(self) -> int:
        """c0 with the copies, and μ with the factor of Σ: twice one vector and B rows."""
        return 2 * (1 + self.capacity) * self.dim * self.initial.element_size()

    @property
    def smoothed(self) -> Statistics:
        """μ̃, Σ̃: they follow from the copies, and are as large as they are, so they are not kept."""
        return smoothed_statistics_of(self.copies, self.held)

    @cached_property
    def _row(self) -> dict[ClassId, int]:
        return {class_id: row for row, class_id in enumerate(self.class_ids)}

    def rows(self, class_ids: Iterable[ClassId]) -> list[int]:
        """The rows of these classes, in their order."""
        return look_up(self._row, class_ids)

    def with_classes(self, class_ids: Sequence[ClassId], prototypes: Tensor, shots: Sequence[int]) -> "PrototypeBank":
        """A bank with these new classes added; their first prototype is also their c0."""
        self._check_new(class_ids)
        self._check_prototypes(prototypes, len(class_ids))
        if len(shots) != len(class_ids) or any(count < 1 for count in shots):
            raise WrongShape(f"{len(class_ids)} classes need as many shot counts of 1 or more, not {list(shots)}")
        copies = prototypes.new_zeros(len(class_ids), self.capacity, self.dim)
        copies[:, -1] = prototypes
        held = torch.ones(len(class_ids), dtype=torch.long)
        added = PrototypeBank(
            tuple(class_ids),
            torch.tensor(list(shots), dtype=torch.long),
            prototypes.clone(),
            copies,
            held,
            statistics_of(copies, held),
        )
        return _joined(self, added)

    def without(self, class_ids: Iterable[ClassId]) -> "PrototypeBank":
        """A bank without these classes."""
        gone = set(self.rows(class_ids))
        return self._take([row for row in range(len(self)) if row not in gone])

    def only(self, class_ids: Iterable[ClassId]) -> "PrototypeBank":
        """A bank of these classes only, in their order."""
        rows = self.rows(class_ids)
        if len(set(rows)) != len(rows):
            raise DuplicateClass("a bank holds a class only once")
        return self._take(rows)

    def with_copies(self, prototypes: Tensor, statistics: Statistics | None = None) -> "PrototypeBank":
        """Append one copy to every class and drop the oldest beyond the capacity.

        `statistics`: running statistics of a session; by default they are computed from the copies.
        """
        self._check_prototypes(prototypes, len(self))
        copies = torch.cat([self.copies[:, 1:], prototypes[:, None]], dim=1)
        held = (self.held + 1).clamp_max(self.capacity)
        return replace(
            self,
            copies=copies,
            held=held,
            statistics=statistics if statistics is not None else statistics_of(copies, held),
        )

    def newest(self) -> "PrototypeBank":
        """The same classes with their newest copy only: enough to compare with, in a sixth of the memory."""
        copies, held = self.copies[:, -1:], self.held.clamp_max(1)
        return replace(self, copies=copies, held=held, statistics=statistics_of(copies, held))

    def moved(self, change: SpaceChange) -> "PrototypeBank":
        """The same classes in another space."""
        if change.is_identity:
            return self
        padding = torch.arange(self.capacity) < self.capacity - self.held[:, None]  # (K, B)
        return replace(
            self,
            initial=change.points(self.initial),
            copies=change.points(self.copies).masked_fill_(padding[:, :, None], 0),
            statistics=self.statistics.moved(change),
        )

    def _take(self, rows: list[int]) -> "PrototypeBank":
        if rows == list(range(len(self))):
            return self
        index = torch.tensor(rows, dtype=torch.long)
        return PrototypeBank(
            tuple(self.class_ids[row] for row in rows),
            self.shots[index],
            self.initial[index],
            self.copies[index],
            self.held[index],
            self.statistics.of(index),
        )

    def _check_new(self, class_ids: Sequence[ClassId]) -> None:
        taken = [class_id for class_id in class_ids if class_id in self]
        if taken or len(set(class_ids)) != len(class_ids):
            raise DuplicateClass(f"classes {taken or list(class_ids)} are in the bank already or are given twice")

    def _check_prototypes(self, prototypes: Tensor, count: int) -> None:
        if tuple(prototypes.shape) != (count, self.dim):
            raise WrongShape(f"prototypes of shape {(count, self.dim)} are needed, not {tuple(prototypes.shape)}")
        if not torch.isfinite(prototypes).all():
            raise WrongShape("a prototype has numbers that are not finite")


def look_up(row: Mapping[ClassId, int], class_ids: Iterable[ClassId]) -> list[int]:
    """The rows of these classes, in their order."""
    try:
        return [row[class_id] for class_id in class_ids]
    except KeyError as error:
        raise UnknownClass(f"class {error.args[0]} is not among the {len(row)} known classes") from None


def _joined(first: PrototypeBank, second: PrototypeBank) -> PrototypeBank:
    def both(name: str) -> Tensor:
        return torch.cat([getattr(first, name), getattr(second, name)])

    one, other = first.statistics, second.statistics
    return PrototypeBank(
        first.class_ids + second.class_ids,
        both("shots"),
        both("initial"),
        both("copies"),
        both("held"),
        Statistics(torch.cat([one.mean, other.mean]), torch.cat([one.factor, other.factor])),
    )
