"""`protoquad bench load`: the speed of predictions, beside other servers."""

from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import console, print_line, print_progress
from bench.load.bench_home import bench_folder
from bench.load.comparison import CALLERS, FULL, QUICK, SATURATED, Comparison, compare_servers
from bench.plot import plot_latency
from protoquad.plain_errors import plain_errors

MEANING = {
    "limit": f"throughput with {SATURATED} callers, as a share of the in-process limit",
    "p50": "p50 with one caller, as a multiple of the in-process time for one image",
    "p99_to_p50": "p99 as a multiple of p50, at 70 % of the throughput",
}


def load(
    backbone: BackboneName = "efficientnet_lite0",
    classes: Annotated[int, typer.Option(help="Number of known classes.", min=40)] = 100,
    quick: Annotated[bool, typer.Option("--quick", help="At most two minutes: fewer rounds, small images.")] = False,
    out: Out = None,
) -> None:
    """Throughput and latency of this service, of LitServe, of plain FastAPI, and the in-process limit."""
    with plain_errors(), bench_folder() as folder:
        found = compare_servers(backbone, classes, folder, QUICK if quick else FULL, print_progress)
    console.print(_table(found))
    for name, value in found.ratios().items():
        print_line(f"{MEANING.get(name, f'throughput, as a multiple of {name}')}: {value:.2f}")
    if out:
        content = {"ratios": found.ratios(), "wrong": found.wrong(), **asdict(found)}
        results.save(out, "load", {**content, "backbone": backbone, "classes": classes})
        _plot(out / "load.png", found)
    if found.wrong():
        console.print(f"[red]{found.wrong()} answers were wrong or missing[/red]")
        raise typer.Exit(1)


def _plot(file: Path, found: Comparison) -> None:
    rate = found.rate("protoquad", f"small {SATURATED}")
    p50 = [median(one.p50 for one in rounds) for rounds in found.rates.values()]
    p99 = [median(one.p99 for one in rounds) for rounds in found.rates.values()]
    plot_latency(file, [float(share) for share in found.rates], rate, p50, p99)


def _table(found: Comparison) -> Table:
    heads = [f"{n} callers: answers/s · p50 · p99 ms" for n in CALLERS]
    table = Table("server", *heads, "12 MP, 8 callers", "memory, MB")
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
    table.add_row("in-process limit", f"{alone:.1f} ms per image", "", f"{limit:.1f}", "", "")
    return table
