"""Published results, and the table and plot that show them."""

from pathlib import Path

from rich.console import Console

from bench.display import result_table, summary
from bench.plot import plot_accuracy
from bench.published import published
from core.evaluation import Evaluation


def run_of(sessions: int) -> Evaluation:
    accuracy = tuple(80.0 - number for number in range(sessions))
    return Evaluation(accuracy, 75.0, 10.0, -3.0, 78.0, 50.0, 60.9)


def printed(evaluation: Evaluation, dataset: str) -> str:
    console = Console(width=80, record=True, file=None, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(result_table("ours", evaluation, published(dataset)))
    return capture.get()


def test_the_papers_curve_is_the_printed_one() -> None:
    """Table I of the paper, last session and length."""
    cub = published("cub200")

    assert cub is not None
    assert cub.curves["Proto-quad (paper)"][-1] == 63.39
    assert {len(curve) for curve in cub.curves.values()} == {11}
    assert published("shapes") is None


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    """Eleven sessions, whole numbers, nothing cut off."""
    text = printed(run_of(11), "cub200")

    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert "Proto-quad (paper)" in text
    assert "80.0 79.0" in text


def test_a_run_of_another_protocol_is_not_compared() -> None:
    """Curves of eleven sessions are not compared with a run of three."""
    text = printed(run_of(3), "cub200")

    assert "Proto-quad" not in text
    assert "78.0" in text


def test_the_summary_leaves_out_missing_figures() -> None:
    """A stream with a base session only has no novel classes."""
    alone = Evaluation((80.0,), 80.0, 0.0, 0.0, 80.0, None, None)

    assert "novel" not in summary(alone)
    assert "base 80.00" in summary(alone)


def test_the_plot_is_an_image(tmp_path: Path) -> None:
    """With and without published curves."""
    for dataset in ("cub200", "shapes"):
        file = tmp_path / f"{dataset}.png"
        plot_accuracy(file, "ours", run_of(11).accuracy, published(dataset), "title")
        assert file.read_bytes().startswith(b"\x89PNG")
