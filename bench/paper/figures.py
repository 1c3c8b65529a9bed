"""The figures of runs, and what is computed from several of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from bench.feature_map import FeatureMap
from bench.fscil import RunResult


@dataclass(frozen=True)
class Figures:
    """One run, in percent; `seconds` of training by session."""

    accuracy: tuple[float, ...]
    average: float
    drop: float  # PD
    backward_transfer: float  # BWT
    base: float
    novel: float
    harmonic_mean: float
    seconds: tuple[float, ...]
    bytes_per_class: int
    features: FeatureMap | None = None
    promoted: int | None = None  # sessions that the gate has promoted, where there is one

    @property
    def last(self) -> float:
        return self.accuracy[-1]

    @property
    def seconds_a_session(self) -> float:
        """Without the base session."""
        return fmean(self.seconds[1:]) if len(self.seconds) > 1 else 0.0


def figures_of(result: RunResult) -> Figures:
    one = result.evaluation
    return Figures(
        one.accuracy,
        one.average,
        one.performance_drop,
        one.backward_transfer,
        one.base,
        one.novel or 0.0,
        one.harmonic_mean or 0.0,
        result.seconds,
        result.bytes_per_class,
        result.features,
        _promoted(result),
    )


def _promoted(result: RunResult) -> int | None:
    verdicts = [verdict for verdict in result.verdicts if verdict is not None]
    return sum(verdict.promoted for verdict in verdicts) if verdicts else None


@dataclass(frozen=True)
class Results:
    methods: Mapping[str, Sequence[Figures]]  # one for each draw, the standard one first
    ablations: Mapping[str, Mapping[str, Figures]]  # by name and value


Read = Callable[[Figures], float]


def mean(runs: Sequence[Figures], read: Read) -> float:
    return fmean(read(run) for run in runs)


def mean_curve(runs: Sequence[Figures]) -> list[float]:
    """Accuracy by session."""
    return [fmean(values) for values in zip(*(run.accuracy for run in runs), strict=True)]


def spread(runs: Sequence[Figures], read: Read) -> float:
    """Standard deviation over the draws; 0 for one draw."""
    return stdev(read(run) for run in runs) if len(runs) > 1 else 0.0
