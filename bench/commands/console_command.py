"""`protoquad bench console`: the web page in a browser."""

from dataclasses import asdict
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import console as terminal
from bench.display import print_line, print_progress
from bench.load.bench_home import bench_folder
from bench.load.console_visits import LIMITS, Length, measure_console
from protoquad.plain_errors import plain_errors

ROWS = {
    "kilobytes": "transferred, KB",
    "requests": "requests",
    "first_paint": "first contentful paint, ms",
    "usable": "usable, ms",
    "taught": "three classes taught, ms",
    "tried": "an image answered, ms",
}


def console(
    backbone: BackboneName = "efficientnet_lite0",
    visits: Annotated[int, typer.Option(help="Visits with an empty cache.", min=1)] = Length.visits,
    lessons: Annotated[int, typer.Option(help="Visits that teach and try the samples.", min=0)] = Length.lessons,
    out: Out = None,
) -> None:
    """The console's first paint in Chromium: bytes and time. Exit code 1 beyond 100 KB or 0.3 s.

    Needs Chromium on PATH and the package `playwright`.
    """
    with plain_errors(), bench_folder() as folder:
        found = measure_console(backbone, folder, Length(visits, lessons), print_progress)
    figures = asdict(found)
    table = Table("", "median", "least", "most", "limit")
    medians = {name: round(median(figures[name]), 2) for name in ROWS if figures[name]}
    for name, middle in medians.items():
        least, most = min(figures[name]), max(figures[name])
        table.add_row(
            ROWS[name], f"{middle:g}", f"{least:g}", f"{most:g}", f"{LIMITS[name]:g}" if name in LIMITS else ""
        )
    terminal.print(table)
    print_line(found.browser)
    results.save(out, "console", {"medians": medians, "limits": LIMITS, **figures, "backbone": backbone})
    if exceeded := found.exceeded():
        print_line(f"too large: {', '.join(ROWS[name] for name in exceeded)}")
        raise typer.Exit(1)
