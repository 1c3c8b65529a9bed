"""What wakes a worker's loop: an announced session, or a request to stop."""

import queue
import threading

from store.models import SessionId


class Announced:
    """A session that a message says is ready; `handled` is set when the loop has tried it."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self.handled = threading.Event()


class Wakeups:
    """Filled from any thread, emptied by the one that runs sessions, one after another."""

    def __init__(self) -> None:
        # SimpleQueue: the only queue that a signal handler may put into while its own thread takes from it.
        self._queue: queue.SimpleQueue[Announced | None] = queue.SimpleQueue()

    def announce(self, session_id: SessionId) -> Announced:
        announced = Announced(session_id)
        self._queue.put(announced)
        return announced

    def wake(self) -> None:
        self._queue.put(None)

    def next(self, seconds: float) -> Announced | None:
        """The next announcement; None if there is none within this many seconds, or the loop is woken."""
        try:
            return self._queue.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
