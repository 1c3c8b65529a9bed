"""How far our method is ahead of others, and how far it would be without luck.

All methods learn from the same draws of the shots. A hard draw lowers all of them together, so what is compared is the
difference in each draw: its standard error is smaller than the spread of any one method.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from bench.paper.figures import Figures, Read, Results
from bench.paper.plan import OURS

SURE = 2.0  # standard errors beyond which a difference is not taken for chance


@dataclass(frozen=True)
class Lead:
    """Over one other method, mean over the draws; the error of one draw is not known and taken as 0."""

    over: str
    points: float
    error: float  # standard error of the mean
    draws: int

    @property
    def least(self) -> float:
        return self.points - SURE * self.error

    @property
    def most(self) -> float:
        return self.points + SURE * self.error

    def __str__(self) -> str:
        if self.draws < 2:
            return f"{self.points:+.2f} points"
        return f"{self.points:+.2f} ± {SURE * self.error:.2f} points (two standard errors, {self.draws} draws)"


def lead(over: str, ours: Sequence[Figures], theirs: Sequence[Figures], read: Read) -> Lead:
    apart = [read(one) - read(other) for one, other in zip(ours, theirs, strict=True)]
    error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
    return Lead(over, fmean(apart), error, len(apart))


def leads(results: Results, read: Read) -> list[Lead]:
    """Over every other method; none where ours was not run."""
    ours = results.methods.get(OURS)
    if ours is None:
        return []
    return [lead(name, ours, runs, read) for name, runs in results.methods.items() if name != OURS]
