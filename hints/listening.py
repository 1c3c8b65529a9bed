"""Hears that models have changed, for processes that serve them."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

from hints.broker import CHANNEL, connected

log = structlog.get_logger()

SECONDS_BETWEEN_TRIES = 2.0
SECONDS_PER_LOOK = 0.5  # how soon it notices that it is to stop


class Listener:
    """Calls `on_news`, from a thread of its own, for every change, and once after each silence."""

    def __init__(self, url: str, on_news: Callable[[], object]) -> None:
        self._url = url
        self._on_news = on_news
        self._stopped = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="news", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join(timeout=2 * SECONDS_PER_LOOK)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # whatever a driver raises: polling goes on
                if not self._told:
                    log.warning("redis does not answer; the table is polled instead", error=str(error))
                self._told = True
                self._stopped.wait(SECONDS_BETWEEN_TRIES)

    def _listen(self) -> None:
        with connected(self._url) as redis, redis.pubsub(ignore_subscribe_messages=True) as channel:
            channel.subscribe(CHANNEL)
            self._told = False
            self._on_news()  # of what happened while nobody listened
            while not self._stopped.is_set():
                if channel.get_message(timeout=SECONDS_PER_LOOK) is not None:
                    self._on_news()
