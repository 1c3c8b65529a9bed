"""`protoquad bench overheads`: costs that must stay small, each with its limit."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import console, print_progress
from bench.load.bench_home import bench_folder
from bench.load.overheads import Length, measure_overheads
from protoquad.plain_errors import plain_errors


def overheads(
    backbone: BackboneName = "efficientnet_lite0",
    rounds: Annotated[int, typer.Option(help="Requests of each kind to each server.", min=1)] = Length.rounds,
    versions: Annotated[int, typer.Option(help="Versions of the long history.", min=1)] = Length.versions,
    out: Out = None,
) -> None:
    """Overheads with a limit: image inspection, an unreachable broker, a long history. Exit code 1 if one is larger."""
    with plain_errors(), bench_folder() as folder:
        found = measure_overheads(backbone, folder, Length(rounds, versions), print_progress)
    table = Table("overhead", "ratio", "limit", "")
    for one in found:
        table.add_row(one.name, f"{one.ratio:g}", f"{one.limit:g}", "" if one.is_small else "[red]too large[/red]")
    console.print(table)
    results.save(out, "overheads", {"overheads": [asdict(one) for one in found], "backbone": backbone})
    if not all(one.is_small for one in found):
        raise typer.Exit(1)
