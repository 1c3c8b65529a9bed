"""SQLite's write-ahead log, truncated after images were erased.

An erased image is overwritten in the database (`PRAGMA secure_delete`), but the log beside it still holds the pages
from before. Truncating the log removes them. That must wait for readers of an older state, so a separate thread tries
until it succeeds, and no request waits for it.
"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import structlog

log = structlog.get_logger()

# While a truncation waits for readers it blocks writers, so each attempt waits only briefly.
BUSY_MILLISECONDS = 50
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
SECONDS_TO_CLOSE = 5.0


class WriteAheadLog:
    """The log of one database file, as one process sees it."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self._lock = threading.Lock()
        self._requests = 0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def truncate_soon(self) -> None:
        """Return at once; a thread truncates the log until it holds nothing that was written before this call."""
        with self._lock:
            self._requests += 1
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._truncate_until_done, name="write-ahead log", daemon=True)
                self._thread.start()

    def truncate(self) -> bool:
        """One attempt; False if a reader or writer prevented it."""
        existing = f"{self.database.absolute().as_uri()}?mode=rw"  # a deleted file is not created again
        with closing(sqlite3.connect(existing, uri=True, timeout=BUSY_MILLISECONDS / 1000)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # does most of the work while others may write
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        """Stop after a last attempt. Call it when this process has no other connection open."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(SECONDS_TO_CLOSE)
            self._attempt()

    def _truncate_until_done(self) -> None:
        pause = SHORTEST_PAUSE
        while not self._closing.is_set():
            with self._lock:
                requests = self._requests
            if not self._attempt():
                self._closing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            elif self._finished(requests):
                return

    def _finished(self, requests: int) -> bool:
        """Whether there was no request since; if so the thread ends, and the next request starts another."""
        with self._lock:
            if self._requests != requests:
                return False
            self._thread = None
            return True

    def _attempt(self) -> bool:
        try:
            return self.truncate()
        except sqlite3.OperationalError as error:  # locked, or a full disk: a later attempt may succeed
            log.debug("write-ahead log not truncated yet", reason=str(error))
            return False
        except sqlite3.Error as error:
            log.warning("write-ahead log cannot be truncated; it may still hold erased images", reason=str(error))
            return True
