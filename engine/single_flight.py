"""One load for all callers who ask for the same thing, in threads of its own.

No lock is held while something loads. A caller gets a future: it may wait with a time limit, wait on an event loop
without a thread, or stop waiting, and the load goes on.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Busy(Exception):
    """Not possible now; the same request may succeed after `retry_seconds`."""

    def __init__(self, reason: str, retry_seconds: int = 5) -> None:
        super().__init__(reason)
        self.retry_seconds = retry_seconds


class _Load(NamedTuple):
    key: Hashable
    work: Callable[[], object]
    future: "Future[object]"


class SingleFlight(Generic[Key, Value]):
    """Loads `what`: `at_once` at a time, with at most `most` that run or wait for their turn.

    All methods may be called from any thread and never wait. The threads are daemons and live only while there is
    something to load: a process that exits does not wait for them.
    """

    def __init__(self, what: str, *, at_once: int, most: int | None = None) -> None:
        self.what = what
        self.at_once = at_once
        self.most = most
        self._lock = threading.Lock()
        self._futures: dict[Key, Future[Value]] = {}
        self._queue: deque[_Load] = deque()
        self._threads = 0

    def start(self, key: Key, work: Callable[[], Value]) -> "Future[Value]":
        """The load of this key that is running or waiting already, or a new one. Raises Busy if there are too many."""
        with self._lock:
            future = self._futures.get(key)
            if future is not None:
                return future
            if self.most is not None and len(self._futures) >= self.most:
                raise Busy(f"{len(self._futures)} {self.what} are being loaded, which is the limit")
            self._require_thread()
            future = Future()
            future.set_running_or_notify_cancel()  # from now on no caller can cancel it for the others
            self._futures[key] = future
            self._queue.append(_Load(key, work, future))  # type: ignore[arg-type]
            return future

    def _require_thread(self) -> None:
        if self._threads == self.at_once:
            return
        try:
            threading.Thread(target=self._run, name=f"loading {self.what}", daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads
            if not self._threads:
                raise Busy(f"no thread can be started to load {self.what}") from error
        else:
            self._threads += 1

    def _run(self) -> None:
        while (load := self._next()) is not None:
            self._finish(load)

    def _next(self) -> _Load | None:
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._threads -= 1
            return None

    def _finish(self, load: _Load) -> None:
        try:
            value = load.work()
        except BaseException as error:
            self._forget(load.key)
            load.future.set_exception(error)
        else:
            self._forget(load.key)
            load.future.set_result(value)

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            del self._futures[key]  # type: ignore[arg-type]


def already(value: Value) -> "Future[Value]":
    """A load that is done already."""
    future: Future[Value] = Future()
    future.set_result(value)
    return future
