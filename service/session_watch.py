"""Watching sessions: how many may watch at a time, and one question to the database for all who watch the same one.

Streams of events and requests that wait for a session both ask again and again. However many they are, the database
hears of each session a few times a second, from a few threads: the others are left to requests that do something.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy.exc import NoResultFound

from service.schemas import SessionBody
from store import sessions
from store.database import Database
from store.models import ModelId, SessionEvent, SessionId
from store.settings import Settings

THREADS = 4
SECONDS_BETWEEN_LOOKS = 0.2  # of a request that waits, at first
MOST_SECONDS_BETWEEN_LOOKS = 1.0

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Places:
    """So many at a time; for use on the event loop alone."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.taken = 0

    @property
    def full(self) -> bool:
        return self.taken >= self.number

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Whoever takes one has asked before whether there is one."""
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


class News(NamedTuple):
    """What happened in a session since an event."""

    events: list[SessionEvent]
    over: bool


class Shared(Generic[Key, Answer]):
    """Asks a question once for all who ask it within `seconds`; a question without an answer yet is not asked again."""

    def __init__(self, ask: Callable[[Key], Answer], seconds: float, limiter: CapacityLimiter) -> None:
        self._ask = ask
        self._seconds = seconds
        self._limiter = limiter
        self._asked: dict[Key, tuple[float, asyncio.Future[Answer]]] = {}

    async def __call__(self, key: Key) -> Answer:
        self._forget_old()
        if key not in self._asked:
            answer = asyncio.ensure_future(run_sync(self._ask, key, limiter=self._limiter))
            answer.add_done_callback(_retrieve)
            self._asked[key] = time.monotonic(), answer
        return await asyncio.shield(self._asked[key][1])  # who stops waiting takes nothing from the others

    def _forget_old(self) -> None:
        oldest = time.monotonic() - self._seconds
        for key, (asked_at, answer) in list(self._asked.items()):
            if answer.done() and asked_at < oldest:
                del self._asked[key]


def _retrieve(answer: "asyncio.Future[Answer]") -> None:
    """An error that nobody waits for any more is not worth a line in the log."""
    if not answer.cancelled():
        answer.exception()


class Watching:
    """Who watches sessions in this process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self.streams = Places(settings.max_streams)
        self.waiters = Places(settings.max_streams)
        limiter = CapacityLimiter(THREADS)
        self.news = Shared(self._news, settings.poll_seconds / 2, limiter)
        self.session = Shared(self._session, SECONDS_BETWEEN_LOOKS / 2, limiter)

    def _news(self, key: tuple[SessionId, int | None]) -> News:
        session_id, after = key
        with self._database.read() as db:
            try:
                return News(sessions.events(db, session_id, after=after), sessions.is_over(db, session_id))
            except NoResultFound:  # gone with its model
                return News([], over=True)

    def _session(self, key: tuple[ModelId, SessionId]) -> SessionBody:
        with self._database.read() as db:
            return SessionBody.of(sessions.get(db, *key))


def seconds_to_next_look(waited: float) -> float:
    """A session that is not over soon takes a while: who waits long may hear of its end a little later."""
    return min(MOST_SECONDS_BETWEEN_LOOKS, max(SECONDS_BETWEEN_LOOKS, waited / 10))
