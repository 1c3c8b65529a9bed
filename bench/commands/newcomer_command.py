"""`protoquad bench newcomer`: what a few classes of a few shots give, without a base session."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Out, RunOptions, Settings, make_context, make_setup
from bench.datasets import DatasetImage
from bench.datasets.stream import DataError
from bench.display import console, print_progress
from bench.newcomer import Half, Newcomer, mean_and_error, read_pools
from bench.overrides import override, split_settings
from engine.pretrained import pretrained
from protoquad.plain_errors import plain_errors

Figures = dict[str, dict[str, float] | None]
ROWS = {
    "provisional": "right at once, %",
    "refined": "right when refined, %",
    "gain": "gain of the session, points",
    "streamed": "right after a stream of sessions, %",
    "stream_gain": "stream against one session, points",
    "promoted": "sessions promoted, %",
    "accepted": "new images of known classes accepted, %",
    "near_refused": "near strangers refused, %",
    "near_refused_at_95": "near strangers refused at exactly 95 % accepted, %",
    "near_auroc": "near strangers, AUROC",
    "far_refused": "far strangers refused, %",
    "far_auroc": "far strangers, AUROC",
    "calibration_error": "calibration error of the confidence",
    "seconds": "seconds of a session, without the trunk",
}
FAR_IMAGES = 200


def newcomer(
    data: Annotated[Path, typer.Option(help="A folder of class folders, or one with `train` and `test` of them.")],
    far: Annotated[
        Path | None, typer.Option(help="Another such folder: strangers of another kind.", show_default=False)
    ] = None,
    scene: Annotated[
        list[str] | None, typer.Option(help="Classes and shots, as 10x5; may be given several times.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Random draws of classes and shots for each scene.", min=1)] = 8,
    half: Annotated[
        Half, typer.Option(help="Which classes; choose: every other one, on which settings are chosen.")
    ] = "report",
    backbone: BackboneName = "efficientnet_lite0",
    out: Out = None,
    settings: Settings = None,
) -> None:
    """What a few classes of a few shots give without a base session: accuracy at once, refined, and after a stream.

    Also how many strangers are refused: near ones, of other classes of the folder, and far ones, of another folder.
    """
    with plain_errors():
        own, others = split_settings(settings or [], RunOptions)
        options = override(RunOptions(), own)
        network = pretrained(backbone, options.weights)
        if not network.pretrained:
            raise DataError(f"{backbone} has no pretrained weights, and without a base session it would learn none")
        setup = override(make_setup(network, "protoquad", "default"), others)
        measured = Newcomer(
            make_context(network, options, "newcomer", data),
            read_pools(data, half),
            _far_images(far),
            make_context(network, options, "newcomer", far),
            setup.incremental,
            setup.replay,
        )
        found = {name: _measure(measured, name, draws) for name in scene or ["10x5"]}
    _print(found, draws)
    content = {"scenes": found, "draws": draws, "half": half, "backbone": backbone, "data": data.name}
    name = options.name or f"newcomer-{data.resolve().name}-{backbone}"
    results.save(out, name, {**content, "far": far.name if far else None, "configuration": asdict(setup)})


def _far_images(folder: Path | None) -> list[DatasetImage]:
    """Some of every class."""
    if folder is None:
        return []
    pools = read_pools(folder, "all").values()
    each = max(1, FAR_IMAGES // max(1, len(pools)))
    return [image for pool in pools for image in list(pool.tests)[:each]]


def _measure(measured: Newcomer, name: str, draws: int) -> Figures:
    classes, shots = _parsed(name)
    scenes = []
    for number in range(draws):
        scenes.append(measured.draw(classes, shots, number))
        one = scenes[-1]
        print_progress(
            f"{name}, draw {number + 1} of {draws}: {one.provisional:.1f} % at once, {one.refined:.1f} % refined"
        )
    return mean_and_error(scenes)


def _parsed(scene: str) -> tuple[int, int]:
    classes, _, shots = scene.partition("x")
    if not (classes.isdecimal() and shots.isdecimal() and int(classes) and int(shots)):
        raise DataError(f"'{scene}' is not a number of classes and shots, such as 10x5")
    return int(classes), int(shots)


def _print(found: dict[str, Figures], draws: int) -> None:
    table = Table("classes x shots", *found, title=f"mean ± standard error of {draws} draws", title_justify="left")
    for row, title in ROWS.items():
        cells = [_cell(figures[row]) for figures in found.values()]
        if any(cells):
            table.add_row(title, *cells)
    console.print(table)


def _cell(figure: dict[str, float] | None) -> str:
    if figure is None:
        return ""
    digits = 3 if abs(figure["mean"]) <= 1 and figure["error"] < 0.1 else 1
    return f"{figure['mean']:.{digits}f} ± {figure['error']:.{digits}f}"
