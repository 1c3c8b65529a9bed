"""Listens for changed models, in processes that serve them."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import structlog

from messaging.broker import CHANNEL, SECONDS_TO_ANSWER, SECONDS_WITHOUT_NEWS, connected, first_line

if TYPE_CHECKING:
    from redis.client import PubSub

log = structlog.get_logger()

SECONDS_BETWEEN_TRIES = 1.0
SECONDS_PER_WAIT = 0.5  # how soon it notices that it should stop


class Listener:
    """Calls `on_news`, from a thread of its own, for every change and after every reconnection."""

    def __init__(self, url: str, on_news: Callable[[], object]) -> None:
        self._url = url
        self._on_news = on_news
        self._stopped = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="news", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=2 * SECONDS_PER_WAIT)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with connected(self._url) as redis, redis.pubsub() as channel:
                    channel.subscribe(CHANNEL)
                    self._listen(channel)
            except Exception as error:  # whatever a driver raises: polling goes on
                self._failed(error)
                self._stopped.wait(SECONDS_BETWEEN_TRIES)

    def _listen(self, channel: "PubSub") -> None:
        last_message, pinged = time.monotonic(), False
        while not self._stopped.is_set():
            message = channel.get_message(timeout=SECONDS_PER_WAIT)
            if message is not None:
                last_message, pinged = time.monotonic(), False
                self._handle(message["type"])
                continue
            silence = time.monotonic() - last_message
            if silence > SECONDS_WITHOUT_NEWS + SECONDS_TO_ANSWER:
                raise TimeoutError("the connection is open, but Redis does not answer")
            if silence > SECONDS_WITHOUT_NEWS and not pinged:
                channel.ping()
                pinged = True

    def _handle(self, kind: str) -> None:
        if kind == "subscribe":  # from here on no change is missed; earlier ones are found by polling
            log.info("redis is back" if self._failing else "listening on redis")
            self._failing = False
        if kind in {"subscribe", "message"} and not self._stopped.is_set():
            self._on_news()

    def _failed(self, error: Exception) -> None:
        if not self._failing and not self._stopped.is_set():
            log.warning("redis does not answer; the table is polled instead", error=first_line(error))
        self._failing = True
