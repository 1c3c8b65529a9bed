"""All connections of the server: closes those that wait too long for their client, and makes room for new ones.

uvicorn waits for a client without a limit and accepts any number of connections. Here both have limits. If there are
too many connections, those that have waited longest for their client are closed.
"""

import asyncio
import time
from collections import Counter
from typing import Any

import structlog

from service.connection_limits import ConnectionLimits
from service.request_turns import RequestTurns

SECONDS_BETWEEN_SWEEPS = 0.5
SECONDS_BETWEEN_LOGS = 10.0

_log = structlog.get_logger("protoquad.connections")


class Connections:
    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.turns = RequestTurns()
        self.closing = 0  # those that were refused and are about to be closed
        self._closed: Counter[str] = Counter()
        self._logged = float("-inf")

    async def sweep_forever(self, connections: "set[Any]") -> None:
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_SWEEPS)
            self.sweep(connections)

    def sweep(self, connections: "set[Any]") -> None:
        """Close the connections that have waited too long."""
        now = time.monotonic()
        for connection in list(connections):
            waiting = connection.observe(now)
            if waiting is not None and now - connection.waiting_since > self.limits.seconds(waiting):
                self._closed[waiting] += 1
                connection.give_up(waiting)
        if (self._closed or self.turns.dropped) and now - self._logged > SECONDS_BETWEEN_LOGS:
            self._logged = now
            self._closed["left_early"], self.turns.dropped = self.turns.dropped, 0
            _log.warning("slow connections closed", open=len(connections), **self._closed)
            self._closed.clear()

    def make_room(self, connections: "set[Any]") -> bool:
        """Close a few of those that have waited longest for their client; returns whether there were any.

        A few at once, so that in a flood of connections not every one of them causes a look at all the others.
        """
        now = time.monotonic()
        waiting = [one for one in connections if one.observe(now) not in (None, "close") and not one.is_closing]
        waiting.sort(key=lambda one: (one.waiting_for() == "body", one.waiting_since))  # those that send come last
        for connection in waiting[: max(1, self.limits.connections // 32)]:
            self._closed["to_make_room"] += 1
            connection.make_way()
        return bool(waiting)

    def count(self, what: str) -> None:
        """Count an event for the next line in the log."""
        self._closed[what] += 1
