"""Delivers what is in the outbox: a thread of every replica, with an event loop of its own.

Replicas share the work by leases. However slow a receiver is, it holds up nobody: each webhook has one delivery at a
time, each delivery has a deadline, and neither requests nor sessions wait for any of it.
"""

import asyncio
import contextlib
import threading

import structlog
from prometheus_client import Counter

from messaging.webhook_sender import Sender
from store import outbox
from store.database import Database
from store.outages import summary
from store.outbox import Claimed, Result
from store.settings import Settings

MOST_AT_ONCE = 32  # deliveries of one replica
SECONDS_BEYOND = 45.0  # that a lease is longer than a delivery: to write down what came of it
SECONDS_TO_STOP = 5.0
SECONDS_BETWEEN_PRUNINGS = 3600.0

log = structlog.get_logger()


class WebhookDelivery:
    """Delivers from when it is made until it is closed."""

    def __init__(self, database: Database, settings: Settings, counter: Counter) -> None:
        self._database = database
        self._poll_seconds = settings.poll_seconds
        self._lease = settings.webhook_seconds + SECONDS_BEYOND
        self.sender = Sender(settings.networks_of_webhooks, seconds=settings.webhook_seconds)
        self._counter = counter
        self._failing = False
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()  # a delivery is over, or it is time to stop
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the deliveries that are being made, for a moment; others find the rest in the table."""
        self._stopping = True
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._news.set)
        self._thread.join(2 * SECONDS_TO_STOP)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._deliver_forever())

    async def _deliver_forever(self) -> None:
        tasks: set[asyncio.Task[None]] = set()
        pruned_at = float("-inf")
        while not self._stopping:
            if self._loop.time() - pruned_at > SECONDS_BETWEEN_PRUNINGS:
                pruned_at = self._loop.time()
                await asyncio.to_thread(self._prune)
            for claimed in await asyncio.to_thread(self._claim, MOST_AT_ONCE - len(tasks)):
                task = asyncio.create_task(self._deliver(claimed))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(lambda _: self._news.set())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), self._poll_seconds)
            self._news.clear()
        if tasks:
            await asyncio.wait(tasks, timeout=SECONDS_TO_STOP)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, claimed: Claimed) -> None:
        sent = await self.sender.send(claimed.url, claimed.secret, claimed.delivery_id, claimed.at, claimed.body)
        result = Result(sent.status, sent.error, sent.milliseconds)
        self._counter.labels("arrived" if result.arrived else "failed").inc()
        about = {"webhook": claimed.webhook_id, "delivery": claimed.delivery_id, "attempt": claimed.attempt}
        if result.arrived:
            log.debug("webhook delivered", **about, status=result.status)
        else:
            log.info("webhook not delivered", **about, error=result.error)
        await asyncio.to_thread(self._record, claimed, result)

    def _claim(self, most: int) -> list[Claimed]:
        if most <= 0:
            return []
        try:
            with self._database.read() as db:
                if not outbox.is_due(db):
                    self._failing = False
                    return []
            with self._database.write() as db:
                claimed = outbox.claim(db, most, self._lease)
        except Exception as error:  # the database is away: the rows are still there when it is back
            if not self._failing:
                log.warning("webhooks are not delivered for now", error=summary(error))
            self._failing = True
            return []
        self._failing = False
        return claimed

    def _record(self, claimed: Claimed, result: Result) -> None:
        try:
            with self._database.write() as db:
                outbox.record(db, claimed, result)
        except Exception as error:  # the lease ends, and it is delivered again, under the same id
            log.warning("the result of a delivery is not written", webhook=claimed.webhook_id, error=summary(error))

    def _prune(self) -> None:
        with contextlib.suppress(Exception), self._database.write() as db:  # there is a next time
            outbox.prune(db)
