"""`protoquad bench checkouts`: the speed of several versions of the sources, measured in turns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import console, print_line, print_progress
from bench.load.bench_home import bench_folder
from bench.load.checkouts import CheckoutLoad, CheckoutResults, Plan, compare_checkouts
from bench.load.servers import Checkout
from protoquad.plain_errors import Refused, plain_errors


def checkouts(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="BEFORE AFTER...", help="Folders made with `git worktree add`, oldest first."),
    ],
    backbone: BackboneName = "efficientnet_lite0",
    classes: Annotated[list[int], typer.Option(help="Number of known classes. Repeatable.", min=40)] = [100],  # noqa: B006
    loads: Annotated[
        list[str], typer.Option("--load", help="Size of the images and number of callers. Repeatable.")
    ] = ["small:32", "small:1", "large:8"],  # noqa: B006
    rounds: Annotated[int, typer.Option(help="Measurements of each; the median ratio counts.", min=1)] = 9,
    seconds: Annotated[float, typer.Option(help="Of each measurement.", min=0.1)] = 6.0,
    out: Out = None,
) -> None:
    """Compare the speed of two or more checkouts with the first: throughput and p99 by round, and memory.

    Each runs with this Python and the modules in its own folder. To see what an optimisation is worth, make a checkout
    without it and pass it after the one that has it.
    """
    with plain_errors(), bench_folder() as folder:
        compared = _checkouts(folders, folder)
        plan = Plan(backbone, classes, [CheckoutLoad.parse(load) for load in loads], rounds, seconds)
        found = compare_checkouts(compared, plan, folder / "homes", print_progress)
    for one in found:
        _print(one)
    commits = {checkout.name: results.commit(checkout.folder) for checkout in compared}
    content = [
        {"classes": one.classes, "load": one.load, "checkouts": {name: one.summary(name) for name in one.rounds}}
        for one in found
    ]
    results.save(out, "checkouts", {"commits": commits, "loads": content, "backbone": backbone})
    if any(result.wrong for one in found for rounds in one.rounds.values() for result in rounds):
        raise typer.Exit(1)


def _checkouts(folders: Sequence[Path], caches: Path) -> list[Checkout]:
    named = {folder.absolute().name: folder.absolute() for folder in folders}
    if len(named) < max(2, len(folders)):
        raise Refused("name at least two checkouts, in folders with different names")
    for folder in named.values():
        if not (folder / "protoquad" / "__main__.py").is_file():
            raise Refused(f"{folder} is not a checkout of protoquad; make one with `git worktree add`")
    return [Checkout(name, folder, caches / "backbones" / name) for name, folder in named.items()]


def _print(one: CheckoutResults) -> None:
    columns = ("checkout", "answers/s", "ratio", "p99, ms", "p99 ratio", "memory, MB", "wrong")
    table = Table(*columns, title=f"{one.classes:,} classes, {one.load}", title_justify="left")
    for name in one.rounds:
        found = one.summary(name)
        table.add_row(
            name,
            f"{found['answers_per_second']:.1f}",
            f"{found['throughput_ratio']:.3f}",
            f"{found['p99']:.1f}",
            f"{found['p99_ratio']:.3f}",
            f"{found['megabytes']:.0f}",
            str(found["wrong"]),
        )
    console.print(table)
    for name in list(one.rounds)[1:]:
        throughput, p99 = (" ".join(f"{ratio:.2f}" for ratio in ratios) for ratios in one.ratios(name))
        print_line(f"{name}, by round: throughput {throughput}; p99 {p99}")
