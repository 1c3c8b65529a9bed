"""`protoquad bench views`: what several views of an image are worth, and what they cost."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out
from bench.display import console, print_line, print_progress
from bench.load.bench_home import bench_folder
from bench.load.view_cost import Length, measure_view_cost
from bench.view_gain import VIEWS, Features, Gain, measure_gain
from core.state import LearnerState
from engine.pretrained import pretrained
from protoquad.plain_errors import plain_errors

CLASSES = (10, 50)
MAX_SHOTS = 10  # images of a class to draw shots from


def views(
    data: Annotated[
        list[Path] | None, typer.Argument(help="Folders with train/ and test/, each of class folders.")
    ] = None,
    backbone: BackboneName = "efficientnet_lite0",
    draws: Annotated[int, typer.Option(help="Number of random draws of classes and shots.", min=1)] = 40,
    images: Annotated[int, typer.Option(help="Test images of a class, at most.", min=1)] = 10,
    rounds: Annotated[int, typer.Option(help="Rounds of each load; 0: do not measure the cost.", min=0)] = 7,
    out: Out = None,
) -> None:
    """Accuracy with one view of an image and with more, five shots a class; the throughput and latency of each."""
    with plain_errors():
        if data:
            gains = {folder.name: _gains(folder, backbone, draws, images) for folder in data}
            for name, found in gains.items():
                console.print(_table(name, found))
            summaries = {name: [_summary(one, found) for one in found] for name, found in gains.items()}
            about = {"backbone": backbone, "draws": draws, "images": images}
            results.save(out, "view-gain", {"gain": summaries, **about})
        if rounds:
            with bench_folder() as folder:
                cost = measure_view_cost(backbone, folder, Length(rounds=rounds), print_progress)
            for name, ratio in cost.ratios().items():
                print_line(f"{name}: {ratio:.2f} times that of one view")
            content = {"ratios": cost.ratios(), "wrong": cost.wrong(), **asdict(cost)}
            results.save(out, "view-cost", {**content, "backbone": backbone})


def _gains(folder: Path, backbone: str, draws: int, images: int) -> list[Gain]:
    network = pretrained(backbone)
    features, space = Features(network), LearnerState.untaught(network).space
    shots = features.read(folder / "train", views=1, most=MAX_SHOTS, seed=0)
    test = features.read(folder / "test", views=max(VIEWS), most=images, seed=0)
    print_progress(f"{folder.name}: {len(shots)} images to teach with, {len(test)} to classify")
    counts = [count for count in CLASSES if count < len(shots.class_ids)]
    return [one for count in counts for one in measure_gain(space, shots, test, count, draws=draws, seed=0)]


def _summary(one: Gain, found: Sequence[Gain]) -> dict[str, float]:
    gain, error = one.over(_first(one, found))
    shares = {name: fmean(getattr(one, name)) for name in ("accuracy", "accepted", "unknown")}
    figures = {name: round(value, 2) for name, value in {**shares, "gain": gain, "error": error}.items()}
    return {"classes": one.classes, "views": one.views, **figures}


def _first(one: Gain, found: Sequence[Gain]) -> Gain:
    return next(other for other in found if (other.classes, other.views) == (one.classes, 1))


def _table(name: str, found: Sequence[Gain]) -> Table:
    table = Table("classes", "views", "accuracy, %", "gain", "accepted, %", "others unknown, %", title=name)
    for one in (_summary(one, found) for one in found):
        gain = f"{one['gain']:+.2f} ± {one['error']:.2f}" if one["views"] > 1 else ""
        shares = (f"{one[name]:.1f}" for name in ("accepted", "unknown"))
        table.add_row(str(one["classes"]), str(one["views"]), f"{one['accuracy']:.1f}", gain, *shares)
    return table
