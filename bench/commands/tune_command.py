"""`protoquad bench tune`: compare settings without a test image."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.table import Table

from bench import results
from bench.commands.run_options import (
    BackboneName,
    Data,
    Dataset,
    Out,
    RunOptions,
    Settings,
    make_context,
    make_network,
    make_setup,
)
from bench.datasets import load
from bench.display import console, print_line
from bench.methods.grid import candidates as candidates_of
from bench.overrides import combinations, override, split_settings
from bench.tuning import Trial, compare
from protoquad.plain_errors import plain_errors


@dataclass(frozen=True)
class TuneOptions(RunOptions):
    """Also how the base classes are divided."""

    partitions: int = 1  # number of ways to divide the base classes
    base_classes: int = 70  # pseudo-base classes; the others are pseudo-novel
    sessions: int = 3  # pseudo-incremental sessions


def tune(
    attempts: Annotated[
        list[str] | None,
        typer.Option("--try", metavar="KEY=A,B", help="Values to compare, as base.blend=0.3,0.6. Repeatable."),
    ] = None,
    dataset: Dataset = "cub200",
    data: Data = None,
    backbone: BackboneName = "efficientnet_lite0",
    out: Out = None,
    settings: Settings = None,
) -> None:
    """Compare settings without a test image: on sessions made of the base classes' training images.

    Without --try the candidates of the method, nine for each method: for example --set method=lucir.

    --set also takes partitions=N (ways to divide the base classes), base_classes=N (pseudo-base classes; the others are
    pseudo-novel) and sessions=N (pseudo-incremental sessions).
    """
    with plain_errors("stopped; finished sessions are kept, run the same command to continue"):
        own, others = split_settings(settings or [], TuneOptions)
        options = override(TuneOptions(), own)
        network = make_network(backbone, options)
        setup = override(make_setup(network, "protoquad", "default"), others)
        tried = [tuple(chosen) for chosen in combinations(attempts)] if attempts else candidates_of(setup)
        candidates = [(chosen, override(setup, chosen)) for chosen in tried]
        trials = compare(
            make_context(network, options, dataset, data),
            load(dataset, data).base,
            candidates,
            partitions=options.partitions,
            base_classes=options.base_classes,
            sessions=options.sessions,
            report=_print_trial,
        )
    table = Table("settings", "base", "novel", "score", title="held-out training images of base classes, %")
    for trial in trials:
        table.add_row(" ".join(trial.settings), f"{trial.base:.2f}", f"{trial.novel:.2f}", f"{trial.score:.2f}")
    console.print(table)
    about = {name: getattr(options, name) for name in ("partitions", "base_classes", "sessions")}
    content = {"trials": [asdict(trial) for trial in trials], **about, "backbone": backbone, "dataset": dataset}
    results.save(out, options.name or f"tune-{setup.method}", content)


def _print_trial(trial: Trial) -> None:
    print_line(f"{' '.join(trial.settings)}: base {trial.base:.2f}  novel {trial.novel:.2f}  score {trial.score:.2f}")
