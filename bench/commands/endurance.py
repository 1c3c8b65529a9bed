"""`protoquad bench swaps`, `classes` and `teaching`: what a service must stand while it serves."""

from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench import results
from bench.load.home import folder_for, make_home
from core import backbones

console = Console()

BackboneName = Annotated[str, typer.Option(help=f"One of {', '.join(backbones.NAMES)}.")]
Out = Annotated[Path | None, typer.Option(help="Where a JSON file of the figures goes.")]


def swaps(
    backbone: BackboneName = "efficientnet_lite0",
    count: Annotated[int, typer.Option("--swaps", help="Versions activated in each of five rounds.", min=1)] = 25,
    predictions: Annotated[int, typer.Option(help="Answered before memory is read again.", min=1)] = 20_000,
    out: Out = None,
) -> None:
    """Swap versions under load: does any request fail, how much longer do they take, does memory grow."""
    with folder_for("httpx") as folder:
        from bench.load.swaps import Length, run_swaps

        found = run_swaps(backbone, folder, make_home, Length(swaps=count, predictions=predictions), _tell)
    steady, swapping = (median(one.p99 for one in loads) for loads in (found.steady, found.swapping))
    _say(f"p99: {steady:.1f} ms steady, {swapping:.1f} ms during swaps: {found.ratios()['p99']:.2f} times")
    _say(f"{len(found.swaps)} swaps, each answered after {median(found.swaps):.0f} ms; wrong or missing: {found.wrong}")
    before, after = found.megabytes
    _say(f"memory: {before:.0f} MB, {after:.0f} MB after {found.answers} predictions ({found.growth:+.1%})")
    _write(out, "swaps", {"ratios": found.ratios(), **asdict(found), "backbone": backbone})
    if found.wrong:
        raise typer.Exit(1)


def classes(
    backbone: BackboneName = "efficientnet_lite0",
    quick: Annotated[bool, typer.Option("--quick", help="Without the hundred thousand; one round.")] = False,
    out: Out = None,
) -> None:
    """Answers a second with 100, 10,000 and 100,000 classes; loading them; teaching one more."""
    with folder_for("httpx") as folder:
        from bench.load.scale import Length, run_scale

        length = Length(classes=(100, 10_000), seconds=4.0, rounds=1) if quick else Length()
        found = run_scale(backbone, folder, make_home, length, _tell)
    ratios = found.ratios()
    table = Table("classes", "answers/s", "of the first", "p50, ms", "loading, s", "memory, MB")
    for number, loads in found.loads.items():
        table.add_row(
            f"{number:,}",
            f"{found.rate(number):.1f}",
            f"{ratios.get(f'throughput {number}', 1.0):.2f}",
            f"{median(one.p50 for one in loads):.0f}",
            f"{median(found.loading[number]):.2f}",
            f"{found.megabytes[number]:.0f}",
        )
    console.print(table)
    if "teaching" in ratios:
        slow = sorted(found.teaching)[int(0.95 * len(found.teaching))]
        _say(
            f"teaching five shots with {length.taught_at:,} classes there: p95 {slow:.0f} ms, {ratios['teaching']:.1f} "
            f"times the engine's {found.five:.0f} ms for five pictures; {found.rows:.1f} rows added"
        )
    _write(out, "classes", {"ratios": ratios, **asdict(found), "backbone": backbone})
    if found.wrong():
        _say(f"{found.wrong()} answers were wrong or missing")
        raise typer.Exit(1)


def teaching(
    backbone: BackboneName = "efficientnet_lite0",
    number: Annotated[int, typer.Option("--classes", help="How many classes are taught.", min=1)] = 500,
    shots: Annotated[int, typer.Option(help="Pictures of each.", min=1)] = 5,
    teachers: Annotated[int, typer.Option(help="Clients that teach.", min=1)] = 3,
    callers: Annotated[int, typer.Option(help="Clients that predict meanwhile.", min=1)] = 20,
    out: Out = None,
) -> None:
    """Teach many classes while others predict: is anything lost, and how much longer do predictions take."""
    with folder_for("httpx") as folder:
        from bench.load.teaching_load import Size, run_teaching

        found = run_teaching(backbone, Size(number, shots, teachers, callers), folder, _tell)
    slowest = sorted(found.milliseconds)[int(0.95 * len(found.milliseconds))]
    _say(f"{number} classes taught in {found.seconds:.0f} s, p95 {slowest:.0f} ms; sessions: {found.sessions}")
    _say(f"p99 of answers: {found.alone.p99:.0f} ms alone, {found.beside.p99:.0f} ms beside: {found.ratio:.2f} times")
    _say(
        f"wrong or missing predictions: {found.beside.wrong}; refused: {found.refused or 'none'}; "
        f"lost: {found.lost or 'none'}"
    )
    about = {"backbone": backbone, "classes": number, "shots": shots, "teachers": teachers, "callers": callers}
    _write(out, "teaching", {"ratio": round(found.ratio, 3), **asdict(found), **about})
    if found.lost or found.refused or found.beside.wrong:
        raise typer.Exit(1)


def _write(out: Path | None, name: str, content: dict[str, Any]) -> None:
    if out:
        results.write(out / f"{name}.json", {**content, **results.origin()})


def _tell(what: str) -> None:
    console.print(what, highlight=False, style="dim")


def _say(what: str) -> None:
    console.print(what, highlight=False, soft_wrap=True)
