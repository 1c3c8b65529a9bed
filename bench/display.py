"""How a benchmark looks in a terminal: bars while it runs, a table at its end."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from bench.published import Published
from bench.run_folder import Record
from core import progress as core_progress
from core.evaluation import Evaluation


class TerminalDisplay:
    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        with self._bar(MofNCompleteColumn()) as bar:
            task = bar.add_task(what, total=total)
            yield lambda count: bar.advance(task, count)

    @contextmanager
    def training(self, what: str) -> Iterator[core_progress.Report]:
        with self._bar(TextColumn("{task.fields[losses]}")) as bar:
            task = bar.add_task(what, total=1.0, losses="")

            def report(step: core_progress.Progress) -> None:
                losses = "  ".join(f"{name} {value:.3f}" for name, value in step.losses.items())
                bar.update(task, completed=step.fraction, losses=f"epoch {step.epoch}/{step.epochs}  {losses}")

            yield report
            bar.update(task, completed=1.0)

    def finished(self, session: int, accuracy: float, record: Record) -> None:
        verdict = record.verdict
        note = "" if verdict is None else "  promoted" if verdict.promoted else f"  rejected: {verdict.reason}"
        self.console.print(
            f"session {session:>2}: {accuracy:6.2f} %  in {record.seconds:6.1f} s{note}", highlight=False
        )

    def _bar(self, *columns: TextColumn | MofNCompleteColumn) -> Progress:
        return Progress(
            TextColumn("{task.description:<16}"),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            *columns,
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,  # a log wants lines, not bars
        )


def result_table(name: str, evaluation: Evaluation, published: Published | None) -> Table:
    """The run beside what was published, one row each, accuracies by session; 11 sessions fit 80 columns."""
    sessions = len(evaluation.accuracy)
    comparable = published if published and published.fits(sessions) else None
    table = Table(box=None, padding=(0, 1, 0, 0), title="accuracy by session, %", title_justify="left")
    table.add_column("method", no_wrap=True)
    for heading in (*range(1, sessions + 1), "avg"):
        table.add_column(str(heading), justify="right", no_wrap=True)
    table.add_row(name, *_row([*evaluation.accuracy, evaluation.average]), style="bold")
    if comparable:
        for rival, curve in comparable.curves.items():
            table.add_row(rival, *_row([*curve, sum(curve) / len(curve)]))
        for rival, (first, last, average) in comparable.ends.items():
            table.add_row(rival, *_row([first, *[None] * (sessions - 2), last, average]))
        table.caption = f"others as published: {comparable.setting}"
        table.caption_justify = "left"
    return table


def summary(evaluation: Evaluation) -> str:
    """The other figures, in a line."""
    figures = {
        "average": evaluation.average,
        "PD": evaluation.performance_drop,
        "BWT": evaluation.backward_transfer,
        "base": evaluation.base,
        "novel": evaluation.novel,
        "harmonic mean": evaluation.harmonic_mean,
    }
    return "  ".join(f"{name} {value:.2f}" for name, value in figures.items() if value is not None)


def _row(values: Sequence[float | None]) -> list[str]:
    return ["" if value is None else f"{value:.1f}" for value in values]
