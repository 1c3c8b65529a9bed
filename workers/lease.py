"""A session's lease: a thread renews it and learns whether the session was cancelled."""

import threading
from typing import Self

import structlog

from core.errors import SessionCancelled
from learners.refining import Claim
from store import sessions
from store.database import Database
from store.errors import LeaseLost
from store.outages import summary

log = structlog.get_logger()

SECONDS_BETWEEN_RENEWALS = 2.0  # at most: a session between two reports learns within it that it was cancelled


class Stopping(Exception):
    """The worker is shutting down; the session goes back to be taken up by the next one."""


class Lease:
    """While it is open the session belongs to this attempt. `check` raises, between two steps, when it does not."""

    def __init__(self, database: Database, claim: Claim, *, seconds: float) -> None:
        self.database = database
        self.claim = claim
        self.seconds = seconds
        self.cancelled = False
        self._lost: LeaseLost | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease-{claim.session_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def check(self) -> None:
        if self._lost:
            raise self._lost
        if self.cancelled:
            raise SessionCancelled(f"session {self.claim.session_id} was cancelled")

    def _renew(self) -> None:
        while not self._done.wait(min(self.seconds / 5, SECONDS_BETWEEN_RENEWALS)):
            try:
                with self.database.write() as db:
                    self.cancelled = sessions.renew(db, self.claim.session_id, self.claim.attempt, self.seconds)
            except LeaseLost as error:
                self._lost = error
                return
            except Exception as error:  # a database that is away for a moment is no reason to give up
                log.warning("lease not renewed", session=self.claim.session_id, error=summary(error))
