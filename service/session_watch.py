"""Watching sessions: how many callers may watch at a time, and one query for all who watch the same session.

Event streams and requests that wait for a session both poll. However many there are, the database is asked about each
session a few times a second, from a few threads: the other threads are left to requests that change something.
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
from store import news, sessions
from store.database import Database
from store.models import ModelId, SessionEvent, SessionId
from store.news import Moment
from store.news import News as ModelNews
from store.settings import Settings

THREADS = 4
SECONDS_BETWEEN_POLLS = 0.2  # of a request that waits, at first
MAX_SECONDS_BETWEEN_POLLS = 1.0

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Places:
    """At most `number` at a time; for use on the event loop alone."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.taken = 0

    @property
    def full(self) -> bool:
        return self.taken >= self.number

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Check `full` first."""
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
    """One query for all who ask the same within `seconds`; a query that is still running is not started again."""

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
        return await asyncio.shield(self._asked[key][1])  # a caller that stops waiting cancels nothing for the others

    def _forget_old(self) -> None:
        oldest = time.monotonic() - self._seconds
        for key, (asked_at, answer) in list(self._asked.items()):
            if answer.done() and asked_at < oldest:
                del self._asked[key]


def _retrieve(answer: "asyncio.Future[Answer]") -> None:
    """Mark an error as seen: asyncio logs errors that nobody has retrieved."""
    if not answer.cancelled():
        answer.exception()


class SessionWatch:
    """The callers that watch sessions in this process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self.streams = Places(settings.max_streams)
        self.waiters = Places(settings.max_streams)
        limiter = CapacityLimiter(THREADS)
        self.news = Shared(self._news, settings.poll_seconds / 2, limiter)
        self.model_news = Shared(self._model_news, settings.poll_seconds / 2, limiter)
        self.session = Shared(self._session, SECONDS_BETWEEN_POLLS / 2, limiter)

    def _news(self, key: tuple[SessionId, int | None]) -> News:
        session_id, after = key
        with self._database.read() as db:
            try:
                return News(sessions.events(db, session_id, after=after), sessions.is_over(db, session_id))
            except NoResultFound:  # gone with its model
                return News([], over=True)

    def _model_news(self, key: tuple[ModelId, Moment | None]) -> ModelNews:
        model_id, seen = key
        with self._database.read() as db:
            return news.now_of(db, model_id) if seen is None else news.since(db, model_id, seen)

    def _session(self, key: tuple[ModelId, SessionId]) -> SessionBody:
        with self._database.read() as db:
            return SessionBody.of(sessions.get(db, *key))


def seconds_to_next_poll(waited: float) -> float:
    """Poll less often the longer a session takes."""
    return min(MAX_SECONDS_BETWEEN_POLLS, max(SECONDS_BETWEEN_POLLS, waited / 10))
