"""Progress bars on a terminal. They print nothing if the output goes to a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from core import progress as session_progress


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """The callback takes the number of items done and the total."""
    with _bar(MofNCompleteColumn()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def counting_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """The callback takes the number of items just done; without a total nobody knows how many there are."""
    with _bar(MofNCompleteColumn()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def training_bar(what: str) -> Iterator[session_progress.Report]:
    """The callback takes the progress of a session; its losses are shown beside the bar."""
    with _bar(TextColumn("{task.fields[losses]}")) as bar:
        task = bar.add_task(what, total=1.0, losses="")

        def report(step: session_progress.Progress) -> None:
            losses = "  ".join(f"{name} {value:.3f}" for name, value in step.losses.items())
            bar.update(task, completed=step.fraction, losses=f"epoch {step.epoch}/{step.epochs}  {losses}")

        yield report
        bar.update(task, completed=1.0)


def _bar(*columns: ProgressColumn) -> Progress:
    console = Console()
    shown = (TextColumn("{task.description:<16}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), *columns)
    return Progress(*shown, console=console, transient=True, disable=not console.is_terminal)
