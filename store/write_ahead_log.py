"""SQLite's write-ahead log, emptied after images were erased.

An erased image is overwritten in the database (`PRAGMA secure_delete`), but the log beside it still holds the pages as
they were when the image was taught. They go when the log is truncated, which has to wait for readers of an older
state; so it is done in a thread of its own, tried again until it succeeds, and holds up no request.
"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import structlog

log = structlog.get_logger()

# While a truncation waits for readers it keeps writers out, so it waits for a moment only and is tried again.
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
        """Returns at once; by and by the log holds nothing that was written before this call."""
        with self._lock:
            self._requests += 1
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._truncate_until_done, name="write-ahead log", daemon=True)
                self._thread.start()

    def truncate(self) -> bool:
        """One attempt; False if a reader or writer was in the way."""
        existing = f"{self.database.absolute().as_uri()}?mode=rw"  # a file that is gone is not made anew
        with closing(sqlite3.connect(existing, uri=True, timeout=BUSY_MILLISECONDS / 1000)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # most of the work, while others may write
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        """Stops trying, after a last attempt. Call it when this process has no other connection open."""
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
        """Whether nobody has asked since; if so the thread ends, and the next request starts another."""
        with self._lock:
            if self._requests != requests:
                return False
            self._thread = None
            return True

    def _attempt(self) -> bool:
        try:
            return self.truncate()
        except sqlite3.OperationalError as error:  # locked, or a full disk: later it may be otherwise
            log.debug("the write-ahead log is not truncated yet", reason=str(error))
            return False
        except sqlite3.Error as error:
            log.warning("the write-ahead log cannot be truncated; erased images may still be in it", reason=str(error))
            return True
