"""Feature vectors that wait to be searched, grouped by search.

Searching many classes for one vector takes as long as for sixteen, because the prototypes are read from memory once for
all of them. So vectors wait until there are enough of them, or until no thread has anything else to do.
"""

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor

from core.classifier import Prediction

Item = TypeVar("Item")  # whose features they are


class Classifier(Protocol):
    @property
    def preferred_batch(self) -> int:
        """How many feature vectors to gather for one search, if that delays nobody."""

    def predict(self, features: Tensor, top_k: int) -> list[Prediction]:
        """A prediction for each image, from the features of its only view (n, M) or of several (n, v, M)."""


class Search(NamedTuple):
    """What is asked about an image. Equal searches are done together."""

    classifier: Classifier
    top_k: int
    views: int = 1  # of each image


class Lot(NamedTuple, Generic[Item]):
    """What is to be searched in one call."""

    search: Search
    features: list[tuple[Item, Tensor]]


@dataclass(eq=False)
class _Waiting(Generic[Item]):
    features: list[tuple[Item, Tensor]] = field(default_factory=list)
    batches: int = 0  # computed since the first of these features
    being_searched: bool = False  # an earlier lot of the same search


class Gathering(Generic[Item]):
    """One lot of each search is out at a time: what comes meanwhile makes the next one. Has no lock of its own."""

    def __init__(self, patience: int) -> None:
        self._patience = patience  # batches after which a lot is due, full or not
        self._waiting: dict[Search, _Waiting[Item]] = {}

    def add(self, search: Search, item: Item, features: Tensor) -> None:
        self._waiting.setdefault(search, _Waiting()).features.append((item, features))

    def count_batch(self) -> None:
        """Call once for each batch that was computed, before its features are added."""
        for waiting in self._waiting.values():
            waiting.batches += bool(waiting.features)

    def take(self, *, idle: bool) -> Lot[Item] | None:
        """A lot that is due; call `finish` when it was searched. `idle`: nothing is being computed that adds to it."""
        for search, waiting in self._waiting.items():
            if self._is_due(search, waiting, idle):
                lot = Lot(search, waiting.features)
                waiting.features, waiting.batches, waiting.being_searched = [], 0, True
                return lot
        return None

    def finish(self, search: Search) -> None:
        waiting = self._waiting[search]
        waiting.being_searched = False
        if not waiting.features:
            del self._waiting[search]  # it holds a classifier, which may be out of use

    def _is_due(self, search: Search, waiting: _Waiting[Item], idle: bool) -> bool:
        if waiting.being_searched or not waiting.features:
            return False
        full = len(waiting.features) >= search.classifier.preferred_batch
        return idle or full or waiting.batches >= self._patience
