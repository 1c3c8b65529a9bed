"""`protoquad bench classes`: the cost of many classes."""

from dataclasses import asdict
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import console, print_line, print_progress
from bench.load.bench_home import bench_folder
from bench.load.class_counts import ClassCountResults, Length, measure_class_counts
from protoquad.plain_errors import plain_errors


def classes(
    backbone: BackboneName = "efficientnet_lite0",
    quick: Annotated[bool, typer.Option("--quick", help="One round, without the 100,000 classes.")] = False,
    out: Out = None,
) -> None:
    """Throughput with 100, 10,000 and 100,000 classes; the time to load a version and to teach one more class."""
    length = Length(classes=(100, 10_000), seconds=4.0, rounds=1) if quick else Length()
    with plain_errors(), bench_folder() as folder:
        found = measure_class_counts(backbone, folder, length, print_progress)
    ratios = found.ratios()
    console.print(_table(found))
    if "teaching" in ratios:
        print_line(
            f"teaching five shots with {length.taught_at:,} classes: p95 {found.teaching_p95():.0f} ms, "
            f"{ratios['teaching']:.1f} times the {found.five:.0f} ms of the network for five images; "
            f"{found.rows:.1f} rows added"
        )
    results.save(out, "classes", {"ratios": ratios, **asdict(found), "backbone": backbone})
    if found.wrong():
        print_line(f"{found.wrong()} answers were wrong or missing")
        raise typer.Exit(1)


def _table(found: ClassCountResults) -> Table:
    ratios = found.ratios()
    table = Table("classes", "answers/s", "ratio to the first", "p50, ms", "loading, s", "memory, MB")
    for number, loads in found.loads.items():
        table.add_row(
            f"{number:,}",
            f"{found.rate(number):.1f}",
            f"{ratios.get(f'throughput {number}', 1.0):.2f}",
            f"{median(one.p50 for one in loads):.0f}",
            f"{median(found.loading[number]):.2f}",
            f"{found.megabytes[number]:.0f}",
        )
    return table
