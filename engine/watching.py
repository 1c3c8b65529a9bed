"""Whoever wants to know how requests pass the engine: traces do. Without a watch, nothing of this is called."""

from collections.abc import Callable, Sequence
from typing import Protocol


class Watch(Protocol):
    """Of one request. Called by the engine's threads; must be quick and must not raise."""

    def decoded(self) -> None:
        """Its images are decoded and wait for the network."""


WatchBatch = Callable[[Sequence[Watch | None]], Callable[[], None]]
"""A batch begins, with an image of each of these requests; the function that it returns is called when it is over."""
