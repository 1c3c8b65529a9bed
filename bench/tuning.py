"""Choose settings without the test set: compare candidates on a stream made of the base session's training images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.datasets import Session, carve
from bench.fscil import RunContext, run
from bench.methods import Setup


@dataclass(frozen=True)
class Trial:
    settings: tuple[str, ...]
    base: float  # accuracy on the pseudo-base classes after the last session, mean over partitions
    novel: float

    @property
    def score(self) -> float:
        """Base and novel classes have equal weight, as at the end of the standard protocol."""
        return (self.base + self.novel) / 2


def compare(
    context: RunContext,
    base: Session,
    candidates: Sequence[tuple[tuple[str, ...], Setup]],
    *,
    partitions: int,
    base_classes: int,
    sessions: int = 3,
    report: Callable[[Trial], None],
) -> list[Trial]:
    """Every candidate on the same partitions, best first. Reads nothing but `base.train`."""
    streams = [carve(base, seed=seed, base_classes=base_classes, sessions=sessions) for seed in range(partitions)]
    trials = []
    for settings, setup in candidates:
        ends = [run(context, stream, setup).evaluation for stream in streams]
        novel = [end.novel for end in ends if end.novel is not None]
        trials.append(Trial(settings, fmean(end.base for end in ends), fmean(novel)))
        report(trials[-1])
    return sorted(trials, key=lambda trial: -trial.score)
