"""`protoquad bench few-shots`: five shots per class on the pretrained network."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import BackboneName, Data, Dataset, Out, RunOptions, Settings, make_context
from bench.datasets import load
from bench.display import console, print_line
from bench.few_shots import KNOWN_CLASSES, OpenSet, base_features, measure_accuracy, measure_open_set, measure_outliers
from bench.overrides import override
from core.state import LearnerState
from engine.pretrained import pretrained
from protoquad.plain_errors import plain_errors


def few_shots(
    dataset: Dataset = "cub200",
    data: Data = None,
    backbone: BackboneName = "efficientnet_lite0",
    draws: Annotated[int, typer.Option(help="Number of random draws of classes and shots.", min=1)] = 60,
    out: Out = None,
    settings: Settings = None,
) -> None:
    """Results with five shots per class and no training: accuracy, unknown images detected, wrong shots found.

    --set takes seed=N, weights=FILE, cache=DIR and device=NAME.
    """
    with plain_errors():
        options = override(RunOptions(), settings or [])
        network = pretrained(backbone, options.weights)
        views = base_features(make_context(network, options, dataset, data), load(dataset, data).base)
        images = views.centre()  # what teaching embeds
        space = LearnerState.untaught(network).space
        random = {"draws": draws, "seed": options.seed}
        accuracy = {
            "centre view": measure_accuracy(space, images, **random),
            f"{views.views} views": measure_accuracy(space, views, **random),
        }
        counts = [count for count in KNOWN_CLASSES if count < len(images.class_ids)]
        open_sets = [measure_open_set(space, images, count, **random) for count in counts]
        # A draw is of one class only, so more of them are needed.
        outliers = measure_outliers(space, images, draws=10 * draws, seed=options.seed)
    _print_open_sets(open_sets, draws)
    for view, share in accuracy.items():
        print_line(f"accuracy over {len(images.class_ids)} classes, {view} of each shot: {share:.1f} %")
    print_line(f"correct shots reported as outliers: {outliers.false_alarms:.1f} %")
    print_line(f"wrong shots among four correct ones reported as outliers: {outliers.found:.1f} %")
    content = {"accuracy": accuracy, "open_set": [asdict(one) for one in open_sets], "outliers": asdict(outliers)}
    results.save(out, "few-shots", {**content, **random, "backbone": backbone, "dataset": dataset})


def _print_open_sets(open_sets: Sequence[OpenSet], draws: int) -> None:
    table = Table("known classes", "accepted, %", "others unknown, %", title=f"five shots per class, {draws} draws")
    for one in open_sets:
        table.add_row(str(one.classes), f"{one.accepted:.1f}", f"{one.unknown:.1f}")
    console.print(table)
