"""Versions beside the active ones that callers have pinned with `?version=n`.

The bound counts what is in memory, not only what is listed: a version that was dropped counts until the last prediction
with it is done.
"""

from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar
from weakref import WeakSet

from engine.network import Loaded
from engine.recently_used import RecentlyUsed
from engine.single_flight import Busy, SingleFlight

Key = tuple[int, int]  # model id and number of the version
MAX_LOADING = 16  # pinned versions that load or wait for it; one loads at a time


Version = TypeVar("Version", bound=Loaded)


class PinnedVersions(Generic[Version]):
    """At most `keep` versions, with `max_classes` classes together; one alone may have more."""

    def __init__(self, keep: int, max_classes: int) -> None:
        self.max_classes = max_classes
        self._ready: RecentlyUsed[Key, Version] = RecentlyUsed(keep)
        self.loads: SingleFlight[Key, Version] = SingleFlight("pinned versions", at_once=1, most=MAX_LOADING)
        self._in_memory: WeakSet[Version] = WeakSet()  # changed by the one thread that loads

    def __len__(self) -> int:
        return len(self._ready)

    def get(self, key: Key) -> Version | None:
        return self._ready.get(key)

    def load(self, key: Key, classes: int, load: Callable[[], Version]) -> "Future[Version]":
        """One load for all who ask for this version. Raises Busy when too many others wait."""
        return self.loads.start(key, partial(self._load, key, classes, load))

    def keep_only(self, model_ids: Collection[int]) -> None:
        """Drop the versions of models that were deleted."""
        self._ready.drop(lambda key: key[0] not in model_ids)

    @property
    def classes_in_memory(self) -> int:
        return sum(len(version.classifier) for version in self._in_memory)

    def _load(self, key: Key, classes: int, load: Callable[[], Version]) -> Version:
        known = self._ready.get(key)
        if known is not None:
            return known
        self._make_room(classes)
        version = load()
        self._in_memory.add(version)
        return self._ready.put(key, version)

    def _make_room(self, classes: int) -> None:
        while (present := self.classes_in_memory) and present + classes > self.max_classes:
            if not self._ready.drop_oldest():
                raise Busy(f"predictions use pinned versions with {present} classes", retry_seconds=1)
