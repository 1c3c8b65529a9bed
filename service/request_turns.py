"""Starts requests: a few in each turn of the event loop, so that a flood of them does not delay anything else.

Between two turns the loop polls its sockets: health checks, which do not wait here, get through, and a request whose
client has left is never started. Callers take turns: one that sends a thousand requests delays only itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

PER_TURN = 4  # requests; each occupies the loop for about a millisecond until it waits for something


class _Request(NamedTuple):
    cycle: Any  # uvicorn's
    start: Callable[[], None]


class RequestTurns:
    def __init__(self) -> None:
        self.dropped = 0  # requests whose clients left before they were started
        self._waiting: dict[Hashable, deque[_Request]] = {}  # by caller; the next one comes first
        self._room = PER_TURN
        self._turn: asyncio.Handle | None = None

    def begin(self, cycle: Any, start: Callable[[], None]) -> None:
        """Start a request now if few others were started in this turn, otherwise in a later turn."""
        if self._room and not self._waiting:
            self._room -= 1
            start()
        else:
            self._waiting.setdefault(_caller(cycle.scope), deque()).append(_Request(cycle, start))
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn, self._room = None, PER_TURN
        while self._waiting and self._room:
            request = self._next()
            if request.cycle.disconnected:
                self.dropped += 1
            else:
                self._room -= 1
                request.start()
        if self._waiting:
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)

    def _next(self) -> _Request:
        caller, requests = next(iter(self._waiting.items()))
        del self._waiting[caller]
        request = requests.popleft()
        if requests:
            self._waiting[caller] = requests  # after all others
        return request


def _caller(scope: Any) -> Hashable:
    """The address and the key of the caller; the key is not checked here."""
    key = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    return scope["client"] and scope["client"][0], key
