"""Makes the planned runs one after another, with the time that is left. What an earlier call has measured is read."""

import time
from collections.abc import Callable, Sequence
from statistics import fmean

from bench.datasets import Stream
from bench.fscil import RunContext, run
from bench.paper.figures import Figures, Results, figures_of
from bench.paper.plan import OURS, Planned

CACHED = 1.0  # seconds: a run that took less was read


def measure(
    context: RunContext,
    planned: Sequence[Planned],
    stream_of: Callable[[int | None], Stream],
    notify: Callable[[str], None],
) -> Results:
    """`stream_of`: the stream of a draw."""
    methods: dict[str, list[Figures]] = {}
    ablations: dict[str, dict[str, Figures]] = {}
    remaining = Remaining(planned)
    for number, one in enumerate(planned, start=1):
        started = time.perf_counter()
        figures = figures_of(run(context, stream_of(one.draw), one.setup))
        if one.group == "methods":
            methods.setdefault(one.name, []).append(figures)
        else:
            ablations.setdefault(one.group, {})[one.name] = figures
        left = remaining.after(number, time.perf_counter() - started)
        notify(
            f"[{number}/{len(planned)}] {one.title}: last {figures.last:.2f} %, average {figures.average:.2f} %{left}"
        )
    return Results(methods, ablations)


class Remaining:
    """Estimates the time that is left from the runs of this call: those of the same method, else of any."""

    def __init__(self, planned: Sequence[Planned]) -> None:
        self._kinds = [one.name if one.group == "methods" else OURS for one in planned]
        self._spent: dict[str, list[float]] = {}

    def after(self, number: int, seconds: float) -> str:
        """To be called after run `number`, counted from 1; empty as long as nothing was measured."""
        if seconds > CACHED:
            self._spent.setdefault(self._kinds[number - 1], []).append(seconds)
        left = self._kinds[number:]
        if not self._spent or not left:
            return ""
        any_kind = fmean(value for values in self._spent.values() for value in values)
        total = sum(fmean(self._spent[kind]) if kind in self._spent else any_kind for kind in left)
        return f"; about {duration(total)} left"


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
