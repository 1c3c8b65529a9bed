"""How a session tells what it is doing.

The callback is also how a session is stopped: it may raise `SessionCancelled`, which is safe between any two steps,
because a session changes nothing it was given.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One step done: of which epoch, of how many, and the losses it saw."""

    epoch: int  # from 1
    epochs: int
    episode: int  # from 1, within the epoch
    episodes: int
    losses: Mapping[str, float]

    @property
    def fraction(self) -> float:
        return ((self.epoch - 1) * self.episodes + self.episode) / (self.epochs * self.episodes)


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """A listener that does not listen."""
