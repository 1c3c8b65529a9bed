"""`protoquad bench teaching`, `swaps`, `classes`, `client` and `overheads`: one service under load, and no others."""

from dataclasses import asdict
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import console, print_line, print_progress
from bench.load import class_counts, client_speed, version_swaps
from bench.load.bench_home import bench_folder
from bench.load.overheads import Length, measure_overheads
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
    alone, beside = found.alone.p99, found.beside.p99
    print_line(f"p99 of predictions: {alone:.0f} ms alone, {beside:.0f} ms during teaching: {ratio}")
    print_line(
        f"wrong or missing predictions: {found.beside.wrong}; refused: {found.refused or 'none'}; "
        f"lost: {found.lost or 'none'}"
    )
    content = {"ratio": round(found.ratio, 3), **asdict(found), **asdict(size)}
    results.save(out, "teaching", {**content, "backbone": backbone})
    if found.lost or found.refused or found.beside.wrong:
        raise typer.Exit(1)


def swaps(
    backbone: BackboneName = "efficientnet_lite0",
    count: Annotated[int, typer.Option("--swaps", help="Versions activated in each of five rounds.", min=1)] = 25,
    predictions: Annotated[int, typer.Option(help="Before memory is read again.", min=1)] = 20_000,
    out: Out = None,
) -> None:
    """Swap versions under load: failed requests, latency, and growth of memory."""
    length = version_swaps.Length(swaps=count, predictions=predictions)
    with plain_errors(), bench_folder() as folder:
        found = version_swaps.measure_swaps(backbone, folder, length, print_progress)
    steady, swapping = (median(one.p99 for one in loads) for loads in (found.steady, found.swapping))
    print_line(f"p99: {steady:.1f} ms steady, {swapping:.1f} ms during swaps: {found.ratios()['p99']:.2f} times")
    print_line(f"{len(found.swaps)} swaps, {median(found.swaps):.0f} ms each; wrong or missing answers: {found.wrong}")
    before, after = found.megabytes
    print_line(f"memory: {before:.0f} MB, {after:.0f} MB after {found.answers} predictions ({found.growth:+.1%})")
    results.save(out, "swaps", {"ratios": found.ratios(), **asdict(found), "backbone": backbone})
    if found.wrong:
        raise typer.Exit(1)


def classes(
    backbone: BackboneName = "efficientnet_lite0",
    quick: Annotated[bool, typer.Option("--quick", help="One round, without the 100,000 classes.")] = False,
    out: Out = None,
) -> None:
    """Throughput with 100, 10,000 and 100,000 classes; the time to load a version and to teach one more class."""
    length = class_counts.Length(classes=(100, 10_000), seconds=4.0, rounds=1) if quick else class_counts.Length()
    with plain_errors(), bench_folder() as folder:
        found = class_counts.measure_class_counts(backbone, folder, length, print_progress)
    ratios = found.ratios()
    console.print(_class_table(found))
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


def _class_table(found: class_counts.ClassCountResults) -> Table:
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


def client(
    backbone: BackboneName = "efficientnet_lite0",
    images: Annotated[int, typer.Option(help="Images that the client predicts in each round.", min=1)] = 1000,
    rounds: Annotated[int, typer.Option(help="Rounds; the median counts.", min=1)] = 5,
    out: Out = None,
) -> None:
    """Images a second through `protoquad_client`, beside those of the load driver. Exit code 1 if it is much slower."""
    length = client_speed.Length(images=images, rounds=rounds)
    with plain_errors(), bench_folder() as folder:
        found = client_speed.measure_client(backbone, folder, length, print_progress)
    for name, ratio in found.ratios().items():
        print_line(f"{name}: {median(found.rates[name]):.1f} images/s, {ratio:.2f} of what the load driver gets")
    print_line(f"wrong or missing answers: {found.wrong}")
    results.save(out, "client", {"ratios": found.ratios(), **asdict(found), "backbone": backbone, "images": images})
    if found.wrong or min(found.ratios().values()) < client_speed.LIMIT:
        raise typer.Exit(1)


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
