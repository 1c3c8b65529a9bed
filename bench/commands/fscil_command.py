"""`protoquad bench fscil`: accuracy by session, beside published results."""

from pathlib import Path
from typing import Annotated

import typer

from bench import results
from bench.commands.run_options import (
    BackboneName,
    Data,
    Dataset,
    Preset,
    RunOptions,
    Settings,
    make_context,
    make_network,
    make_setup,
)
from bench.datasets import load
from bench.display import console, print_line, result_table, summary
from bench.fscil import run
from bench.methods import METHODS, Setup
from bench.overrides import override, split_settings
from bench.plot import plot_accuracy
from bench.published import published
from protoquad.plain_errors import plain_errors


def fscil(
    dataset: Dataset = "cub200",
    data: Data = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "protoquad",
    backbone: BackboneName = "efficientnet_lite0",
    draw: Annotated[int | None, typer.Option(help="Another random draw of the shots than the standard one.")] = None,
    preset: Annotated[
        Preset, typer.Option(help="paper: train as in the paper; no-base: keep the pretrained weights.")
    ] = "default",
    out: Annotated[Path, typer.Option(help="The folder for the JSON file and the plot.")] = Path("bench-results"),
    settings: Settings = None,
) -> None:
    """Few-shot class-incremental accuracy: a base session, then sessions with a few shots of new classes.

    All other settings are set with --set: for example base.metric=cosine, incremental.loss=triplet, gate=false, seed=1,
    name=my-run, cache=DIR, device=cuda, fresh=true.
    """
    with plain_errors("stopped; finished sessions are kept, run the same command to continue"):
        own, others = split_settings(settings or [], RunOptions)
        options = override(RunOptions(), own)
        network = make_network(backbone, options)
        seeds = [f"base.seed={options.seed}", f"incremental.seed={options.seed}"]
        setup = override(make_setup(network, method, preset), [*seeds, *others])
        stream = load(dataset, data, draw=draw, seed=options.seed)
        result = run(make_context(network, options, dataset, data), stream, setup, fresh=options.fresh)
    name = options.name or _name(setup, backbone, draw)
    about = {"dataset": dataset, "draw": draw, "backbone": backbone, "bytes_per_class": result.bytes_per_class}
    rivals = published(dataset)
    console.print(result_table(setup.method, result.evaluation, rivals))
    print_line(summary(result.evaluation))
    results.save(out, name, results.as_json(result, setup, about))
    plot_accuracy(out / f"{name}.png", name, result.evaluation.accuracy, rivals, f"{dataset}: accuracy by session")
    print_line(f"results: {out / name}.json\nplot:    {out / name}.png")


def _name(setup: Setup, backbone: str, draw: int | None) -> str:
    parts = [setup.method, backbone.replace(":", "-"), setup.base.metric]
    if setup.base.epochs == 0:
        parts.append("no-base")
    if draw is not None:
        parts.append(f"draw{draw}")
    return "-".join(parts)
