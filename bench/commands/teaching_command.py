"""`protoquad bench teaching`: many classes taught while others predict."""

from dataclasses import asdict
from typing import Annotated

import typer

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import print_line, print_progress
from bench.load.bench_home import bench_folder
from bench.load.teaching_load import Size, measure_teaching
from protoquad.plain_errors import plain_errors


def teaching(
    backbone: BackboneName = "efficientnet_lite0",
    number: Annotated[int, typer.Option("--classes", help="Number of classes to teach.", min=1)] = 500,
    shots: Annotated[int, typer.Option(help="Images of each class.", min=1)] = 5,
    teachers: Annotated[int, typer.Option(help="Clients that teach.", min=1)] = 3,
    callers: Annotated[int, typer.Option(help="Clients that predict meanwhile.", min=1)] = 20,
    out: Out = None,
) -> None:
    """Teach many classes while others predict: lost classes, and the latency of predictions."""
    size = Size(number, shots, teachers, callers)
    with plain_errors(), bench_folder() as folder:
        found = measure_teaching(backbone, size, folder, print_progress)
    p95 = sorted(found.milliseconds)[int(0.95 * len(found.milliseconds))]
    print_line(f"{number} classes taught in {found.seconds:.0f} s, p95 {p95:.0f} ms; sessions: {found.sessions}")
    ratio = f"{found.ratio:.2f} times"
    print_line(
        f"p99 of predictions: {found.alone.p99:.0f} ms alone, {found.beside.p99:.0f} ms during teaching: {ratio}"
    )
    print_line(
        f"wrong or missing predictions: {found.beside.wrong}; refused: {found.refused or 'none'}; "
        f"lost: {found.lost or 'none'}"
    )
    results.save(
        out, "teaching", {"ratio": round(found.ratio, 3), **asdict(found), **asdict(size), "backbone": backbone}
    )
    if found.lost or found.refused or found.beside.wrong:
        raise typer.Exit(1)
