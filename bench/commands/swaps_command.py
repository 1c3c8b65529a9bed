"""`protoquad bench swaps`: versions activated under load."""

from dataclasses import asdict
from statistics import median
from typing import Annotated

import typer

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import print_line, print_progress
from bench.load.bench_home import bench_folder
from bench.load.version_swaps import Length, measure_swaps
from protoquad.plain_errors import plain_errors


def swaps(
    backbone: BackboneName = "efficientnet_lite0",
    count: Annotated[int, typer.Option("--swaps", help="Versions activated in each of five rounds.", min=1)] = 25,
    predictions: Annotated[int, typer.Option(help="Before memory is read again.", min=1)] = 20_000,
    out: Out = None,
) -> None:
    """Swap versions under load: failed requests, latency, and growth of memory."""
    with plain_errors(), bench_folder() as folder:
        found = measure_swaps(backbone, folder, Length(swaps=count, predictions=predictions), print_progress)
    steady, swapping = (median(one.p99 for one in loads) for loads in (found.steady, found.swapping))
    print_line(f"p99: {steady:.1f} ms steady, {swapping:.1f} ms during swaps: {found.ratios()['p99']:.2f} times")
    print_line(f"{len(found.swaps)} swaps, {median(found.swaps):.0f} ms each; wrong or missing answers: {found.wrong}")
    before, after = found.megabytes
    print_line(f"memory: {before:.0f} MB, {after:.0f} MB after {found.answers} predictions ({found.growth:+.1%})")
    results.save(out, "swaps", {"ratios": found.ratios(), **asdict(found), "backbone": backbone})
    if found.wrong:
        raise typer.Exit(1)
