"""`protoquad bench load`: how fast predictions are, beside what others would have written."""

from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench import results
from bench.load.home import folder_for, make_home
from bench.load.run import CALLERS, FULL, QUICK, SATURATED, Findings, run
from bench.plot import plot_latency
from core import backbones

console = Console()


def load(
    backbone: Annotated[str, typer.Option(help=f"One of {', '.join(backbones.NAMES)}.")] = "efficientnet_lite0",
    classes: Annotated[int, typer.Option(help="How many classes are known.", min=40)] = 100,
    quick: Annotated[bool, typer.Option("--quick", help="At most two minutes: fewer rounds, small pictures.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where a JSON file of the figures goes.")] = None,
) -> None:
    """Answers a second and latency of this service, of LitServe, of plain FastAPI, and the in-process limit."""
    with folder_for("litserve") as folder:
        found = run(backbone, classes, folder, make_home, QUICK if quick else FULL, _tell)
    console.print(_table(found))
    ratios = found.ratios()
    for name, value in ratios.items():
        console.print(f"{_MEANING.get(name, f'throughput, as a multiple of {name}')}: {value:.2f}", highlight=False)
    if found.wrong():
        console.print(f"[red]{found.wrong()} answers were wrong or missing[/red]")
    if out:
        results.write(out / "load.json", _content(found, backbone, classes))
        _plot(out / "load.png", found)
    if found.wrong():
        raise typer.Exit(1)


def _plot(file: Path, found: Findings) -> None:
    rate = found.rate("protoquad", f"small {SATURATED}")
    p50 = [median(one.p50 for one in rounds) for rounds in found.rates.values()]
    p99 = [median(one.p99 for one in rounds) for rounds in found.rates.values()]
    plot_latency(file, [float(share) for share in found.rates], rate, p50, p99)


_MEANING = {
    "limit": f"throughput with {SATURATED} callers, as a share of the in-process limit",
    "p50": "p50 with one caller, as a multiple of the in-process time of one picture",
    "p99_to_p50": "p99 as a multiple of p50, at 70 % of the throughput",
}


def _tell(what: str) -> None:
    console.print(what, highlight=False, style="dim")


def _table(found: Findings) -> Table:
    table = Table(
        "server", *(f"{n} callers: answers/s · p50 · p99 ms" for n in CALLERS), "12 MP, 8 callers", "memory, MB"
    )
    for name, loads in found.closed.items():
        cells = [
            f"{found.rate(name, load):.1f} · {found.p50(name, load):.1f} · {max(one.p99 for one in loads[load]):.1f}"
            if load in loads
            else ""
            for load in (f"small {n}" for n in CALLERS)
        ]
        large = f"{found.rate(name, 'large 8'):.1f}" if "large 8" in loads else ""
        table.add_row(name, *cells, large, f"{found.megabytes[name]:.0f}")
    alone, limit = median(found.alone), median(found.limit)
    table.add_row("in-process limit", f"{alone:.1f} ms a picture", "", f"{limit:.1f}", "", "")
    return table


def _content(found: Findings, backbone: str, classes: int) -> dict[str, Any]:
    return {
        "ratios": found.ratios(),
        "wrong": found.wrong(),
        "closed": {
            name: {load: [asdict(one) for one in rounds] for load, rounds in loads.items()}
            for name, loads in found.closed.items()
        },
        "rates": {share: [asdict(one) for one in rounds] for share, rounds in found.rates.items()},
        "limit": found.limit,
        "alone": found.alone,
        "megabytes": found.megabytes,
        "backbone": backbone,
        "classes": classes,
        **results.origin(),
    }
