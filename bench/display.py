"""What a benchmark prints: bars while it runs, a table at its end."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.published import Published
from bench.run_folder import Record
from core.evaluation import Evaluation
from protoquad.progress_bar import counting_bar, training_bar

console = Console()


def print_line(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def print_progress(text: str) -> None:
    """A line about what was just measured, less visible than the results."""
    console.print(text, highlight=False, style="dim")


class TerminalDisplay:
    counting = staticmethod(counting_bar)
    training = staticmethod(training_bar)

    def finished(self, session: int, accuracy: float, record: Record) -> None:
        verdict = record.verdict
        note = "" if verdict is None else "  promoted" if verdict.promoted else f"  rejected: {verdict.reason}"
        print_line(f"session {session:>2}: {accuracy:6.2f} %  in {record.seconds:6.1f} s{note}")


class QuietDisplay(TerminalDisplay):
    """Only the bars: for many runs, each of which is one line."""

    def finished(self, session: int, accuracy: float, record: Record) -> None:
        del session, accuracy, record


def result_table(name: str, evaluation: Evaluation, published: Published | None) -> Table:
    """The run and the published results, one row each, accuracy by session; 11 sessions fit 80 columns."""
    sessions = len(evaluation.accuracy)
    comparable = published if published and published.fits(sessions) else None
    table = Table(box=None, padding=(0, 1, 0, 0), title="accuracy by session, %", title_justify="left")
    table.add_column("method", no_wrap=True)
    for heading in (*range(1, sessions + 1), "avg"):
        table.add_column(str(heading), justify="right", no_wrap=True)
    table.add_row(name, *_row([*evaluation.accuracy, evaluation.average]), style="bold")
    if comparable:
        for other, curve in comparable.curves.items():
            table.add_row(other, *_row([*curve, sum(curve) / len(curve)]))
        for other, (first, last, average) in comparable.ends.items():
            table.add_row(other, *_row([first, *[None] * (sessions - 2), last, average]))
        table.caption = f"other methods as published: {comparable.setting}"
        table.caption_justify = "left"
    return table


def summary(evaluation: Evaluation) -> str:
    """The other figures, in one line."""
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
