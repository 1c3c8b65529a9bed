"""The version cache: versions beside the active ones that callers have pinned with `?version=n`.

Its bound is on what is in memory, not only on what it lists: a version that was dropped counts until the last
prediction with it is done.
"""

from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from engine.recently_used import RecentlyUsed
from engine.single_flight import Busy, SingleFlight
from store.models import ModelId

if TYPE_CHECKING:
    from engine.version_cache import LoadedVersion

Key = tuple[ModelId, int]  # model and number of the version
MOST_LOADING = 16  # pinned versions that load or wait for it; one loads at a time


class PinnedVersions:
    """At most `keep` versions, of `max_classes` classes together; one alone may have more."""

    def __init__(self, keep: int, max_classes: int) -> None:
        self.max_classes = max_classes
        self._ready: RecentlyUsed[Key, LoadedVersion] = RecentlyUsed(keep)
        self._loads: SingleFlight[Key, LoadedVersion] = SingleFlight("pinned versions", at_once=1, most=MOST_LOADING)
        self._in_memory: WeakSet[LoadedVersion] = WeakSet()  # changed by the one thread that loads

    def get(self, key: Key) -> "LoadedVersion | None":
        return self._ready.get(key)

    def load(self, key: Key, classes: int, work: Callable[[], "LoadedVersion"]) -> "Future[LoadedVersion]":
        """One load for all who ask for this version; raises Busy when too many others wait."""
        return self._loads.start(key, partial(self._load, key, classes, work))

    def keep_only(self, model_ids: Collection[ModelId]) -> None:
        """Drop the versions of models that were deleted."""
        self._ready.drop(lambda key: key[0] not in model_ids)

    @property
    def classes_in_memory(self) -> int:
        return sum(len(served.classifier) for served in self._in_memory)

    def _load(self, key: Key, classes: int, work: Callable[[], "LoadedVersion"]) -> "LoadedVersion":
        known = self._ready.get(key)
        if known is not None:
            return known
        self._make_room(classes)
        served = work()
        self._in_memory.add(served)
        return self._ready.put(key, served)

    def _make_room(self, classes: int) -> None:
        while (present := self.classes_in_memory) and present + classes > self.max_classes:
            if not self._ready.drop_oldest():
                raise Busy(f"pinned versions with {present} classes are being predicted with", retry_seconds=1)
