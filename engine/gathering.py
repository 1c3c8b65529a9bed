"""Features that wait to be read, each lot by one thread at a time.

Looking up one picture among a hundred thousand classes takes as long as looking up eight: memory is read through once
for all of them. So while one thread reads, what comes for the same reading is kept for it, and where a lot is worth
gathering, it is read when it is full or when the cores have nothing else to do.
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor

Found = TypeVar("Found")
Read = Callable[[Tensor], Sequence[Found]]
"""Features (n, M) to what is wanted of each picture. What is equal is called once for all who wait for it."""
Share = TypeVar("Share", bound=Sized)  # some pictures of a request


@dataclass(eq=False)
class _Lot(Generic[Share]):
    full: int  # pictures
    features: dict[Share, Tensor] = field(default_factory=dict)
    batches: int = 0  # that have been computed since the first of these
    being_read: bool = False

    def due(self, patience: int, idle: bool) -> bool:
        if self.being_read or not self.features:
            return False
        return idle or sum(map(len, self.features)) >= self.full or self.batches >= patience


class Gathering(Generic[Share]):
    """Not locked: its owner is."""

    def __init__(self, patience: int) -> None:
        self.patience = patience  # batches for which a lot that does not get full waits, whatever else is computed
        self._lots: dict[Read[Any], _Lot[Share]] = {}

    def batch_done(self) -> None:
        for lot in self._lots.values():
            lot.batches += bool(lot.features)

    def add(self, read: Read[Any], full: int, features: Mapping[Share, Tensor]) -> None:
        self._lots.setdefault(read, _Lot(full)).features |= features

    def waits(self) -> bool:
        """Whether there is a lot that nobody reads."""
        return any(lot.due(self.patience, idle=True) for lot in self._lots.values())

    def take(self, *, idle: bool) -> "tuple[Read[Any], dict[Share, Tensor]] | None":
        """A lot that is to be read now; tell when that is `done`. Idle: nothing that is computed will add to any."""
        for read, lot in self._lots.items():
            if lot.due(self.patience, idle):
                features, lot.features, lot.batches, lot.being_read = lot.features, {}, 0, True
                return read, features
        return None

    def done(self, read: Read[Any]) -> None:
        lot = self._lots[read]
        lot.being_read = False
        if not lot.features:
            del self._lots[read]  # and with it a version that is perhaps served no more
