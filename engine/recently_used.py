"""A least-recently-used cache for many threads; its lock is held for a lookup only."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """At most `keep` values. A dropped value lives on while somebody uses it, and is freed outside the lock."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Key, value: Value) -> Value:
        """Returns the value that is kept: of two threads that loaded the same, the first one's."""
        dropped = []
        with self._lock:
            kept = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            while len(self._values) > self.keep:
                dropped.append(self._values.popitem(last=False))
        return kept

    def drop_oldest(self) -> bool:
        """Returns whether there was one."""
        with self._lock:
            dropped = self._values.popitem(last=False) if self._values else None
        return dropped is not None

    def drop(self, unwanted: Callable[[Key], bool]) -> None:
        with self._lock:
            dropped = [self._values.pop(key) for key in list(self._values) if unwanted(key)]
        del dropped  # freed only now, without the lock: it may be large
