"""What wakes a worker's loop: a session that was announced, or a wish to stop."""

import queue
import threading

from store.models import SessionId


class Announced:
    """A session that somebody says is ready; `seen_to` when the loop has looked at it."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self.seen_to = threading.Event()


class Inbox:
    """Filled from any thread, emptied by the one that works: all sessions run in one thread, one after another."""

    def __init__(self) -> None:
        # Simple: the one queue that a signal handler may put into while its own thread takes from it.
        self._letters: queue.SimpleQueue[Announced | None] = queue.SimpleQueue()

    def announce(self, session_id: SessionId) -> Announced:
        letter = Announced(session_id)
        self._letters.put(letter)
        return letter

    def wake(self) -> None:
        self._letters.put(None)

    def next(self, seconds: float) -> Announced | None:
        """The next announcement; nothing, if there is none for so long or somebody wakes the loop."""
        try:
            return self._letters.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
