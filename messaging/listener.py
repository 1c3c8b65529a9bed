"""Hears that models have changed, for processes that serve them."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog
from redis.client import PubSub

from messaging.broker import CHANNEL, SECONDS_TO_ANSWER, SECONDS_WITHOUT_NEWS, connected, first_line

log = structlog.get_logger()

SECONDS_BETWEEN_TRIES = 1.0
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
                with connected(self._url) as redis, redis.pubsub() as channel:
                    channel.subscribe(CHANNEL)
                    self._listen(channel)
            except Exception as error:  # whatever a driver raises: polling goes on
                self._away(error)
                self._stopped.wait(SECONDS_BETWEEN_TRIES)

    def _listen(self, channel: PubSub) -> None:
        heard, asked = time.monotonic(), False
        while not self._stopped.is_set():
            message = channel.get_message(timeout=SECONDS_PER_LOOK)
            if message is not None:
                heard, asked = time.monotonic(), False
                self._hear(message["type"])
                continue
            silence = time.monotonic() - heard
            if silence > SECONDS_WITHOUT_NEWS + SECONDS_TO_ANSWER:
                raise TimeoutError("the connection is open, but nobody answers")
            if silence > SECONDS_WITHOUT_NEWS and not asked:
                channel.ping()
                asked = True

    def _hear(self, kind: str) -> None:
        if kind == "subscribe":  # from here on no change is missed; what came before is found by looking
            log.info("redis is back" if self._told else "listening on redis")
            self._told = False
        if kind in {"subscribe", "message"} and not self._stopped.is_set():
            self._on_news()

    def _away(self, error: Exception) -> None:
        if not self._told and not self._stopped.is_set():
            log.warning("redis does not answer; the table is polled instead", error=first_line(error))
        self._told = True
