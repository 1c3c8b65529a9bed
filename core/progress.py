"""How a session reports its progress.

The callback may stop the session by raising `SessionCancelled`. That is safe after any step, because a session changes
nothing that it was given.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One finished step, and its losses."""

    epoch: int  # from 1
    epochs: int
    episode: int  # from 1, within the epoch
    episodes: int
    losses: Mapping[str, float]

    @property
    def fraction(self) -> float:
        return ((self.epoch - 1) * self.episodes + self.episode) / (self.epochs * self.episodes)


Report = Callable[[Progress], None]
Check = Callable[[], None]  # called between two batches, where nothing is to report; may stop the session too


def silent(progress: Progress) -> None:
    """Report nothing."""


def unchecked() -> None:
    """Never stop."""
