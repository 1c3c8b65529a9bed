"""`protoquad bench …`: measure accuracy by session, choose settings, and measure what a session costs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench import results
from bench.commands import endurance as endurance_commands
from bench.commands import load as load_command
from bench.cost import measure_costs
from bench.datasets import DATASETS, load
from bench.display import TerminalDisplay, result_table, summary
from bench.few_shots import (
    KNOWN_CLASSES,
    Openness,
    Outliers,
    base_features,
    measure_accuracy,
    measure_openness,
    measure_outliers,
)
from bench.fscil import Bench, RunResult, run
from bench.methods import METHODS, Setup
from bench.overrides import combinations, overridden
from bench.plot import plot_accuracy
from bench.published import published
from bench.tuning import Trial, compare
from core import backbones
from core.bank import PrototypeBank
from core.base_session import BaseConfig
from core.errors import ProtoquadError
from core.incremental_session import IncrementalConfig
from core.losses import LOSS_KINDS
from core.space import METRICS
from core.state import LearnerState
from core.views import Scope
from engine.pretrained import pretrained

app = typer.Typer(
    help="Benchmarks, each with a table, a JSON file and the command to repeat it.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(load_command.load)
app.command()(endurance_commands.teaching)
app.command()(endurance_commands.swaps)
app.command()(endurance_commands.classes)
console = Console()

Dataset = Annotated[str, typer.Option(help=f"One of {', '.join(DATASETS)}.")]
Data = Annotated[Path | None, typer.Option(help="The folder of the data set; shapes needs none.", show_default=False)]
BackboneName = Annotated[str, typer.Option(help=f"One of {', '.join(backbones.NAMES)}.")]
WeightsFile = Annotated[Path | None, typer.Option(help="Local weights instead of the pretrained ones.")]
Cache = Annotated[
    Path | None, typer.Option(help="Where activations and weights are kept; .protoquad/bench by default.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:n.")]
Assignments = Annotated[list[str] | None, typer.Option("--set", help="Any other setting, e.g. base.blend=0.5.")]
Preset = Literal["default", "paper"]


@app.command()
def fscil(
    dataset: Dataset = "cub200",
    data: Data = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "protoquad",
    metric: Annotated[str, typer.Option(help=f"One of {', '.join(METRICS)}.")] = "whitened",
    no_base: Annotated[bool, typer.Option("--no-base", help="Keep the pretrained weights: no base training.")] = False,
    backbone: BackboneName = "efficientnet_lite0",
    weights: WeightsFile = None,
    draw: Annotated[int | None, typer.Option(help="Another random draw of the shots than the standard one.")] = None,
    seed: Annotated[int, typer.Option(help="Of training, and of the partition of a folder.")] = 0,
    views: Annotated[int | None, typer.Option(help="Augmented views of a training picture; 0 with --no-base.")] = None,
    preset: Annotated[Preset, typer.Option(help="How sessions learn; paper: as the paper prints it.")] = "default",
    loss: Annotated[str | None, typer.Option(help=f"One of {', '.join(LOSS_KINDS)}.")] = None,
    alpha1: Annotated[float | None, typer.Option(help="Margin between a query and its negative.")] = None,
    alpha2: Annotated[float | None, typer.Option(help="Margin against the distance of the two negatives.")] = None,
    lam: Annotated[float | None, typer.Option("--lambda", help="How fast old prototypes follow L_COR + L_CS.")] = None,
    copies: Annotated[int | None, typer.Option("-B", "--copies", help="Prototype copies kept for each class.")] = None,
    fraction: Annotated[float | None, typer.Option(help="Share of the parameters that a session may change.")] = None,
    calibration: Annotated[bool | None, typer.Option(help="Smoothing and re-colouring of old prototypes.")] = None,
    drift: Annotated[bool | None, typer.Option(help="Drift compensation of old prototypes.")] = None,
    gate: Annotated[bool, typer.Option(help="Reject a session that makes the learner worse.")] = True,
    assign: Assignments = None,
    out: Annotated[Path, typer.Option(help="Where the JSON file and the plot go.")] = Path("bench-results"),
    name: Annotated[str | None, typer.Option(help="Name of the files and of the table's row.")] = None,
    cache: Cache = None,
    device: Device = "cpu",
    fresh: Annotated[bool, typer.Option("--fresh", help="Learn anew what an earlier run has left.")] = False,
) -> None:
    """Few-shot class-incremental accuracy: a base session, then sessions of a few shots of new classes."""
    switches = {
        "incremental.loss": loss,
        "incremental.margins.query": alpha1,
        "incremental.margins.negatives": alpha2,
        "incremental.prototype_rate": lam,
        "base.copies": copies,
        "incremental.fraction": fraction,
        "incremental.calibration": calibration,
        "incremental.drift": drift,
        "base.metric": metric,
        "base.seed": seed,
        "incremental.seed": seed,
    }
    with _clear_errors():
        network = pretrained(backbone, weights)
        setup = _setup(network, method, preset, no_base=no_base, views=views, gate=gate)
        given = [f"{path}={value}" for path, value in switches.items() if value is not None]
        setup = overridden(setup, given + (assign or []))
        stream = load(dataset, data, draw=draw, seed=seed)
        result = run(_bench(network, cache, device, dataset, data), stream, setup, fresh=fresh)
    title = name or _title(method, backbone, metric, draw, no_base=no_base)
    remembered = PrototypeBank.empty(network.dim, setup.base.copies).bytes_per_class
    about = {"dataset": dataset, "draw": draw, "backbone": backbone, "bytes_per_class": remembered}
    _show(out, title, dataset, result, setup, about)


@app.command()
def tune(
    attempts: Annotated[list[str], typer.Option("--try", help="Values to compare: base.blend=0.3,0.6. Repeatable.")],
    dataset: Dataset = "cub200",
    data: Data = None,
    backbone: BackboneName = "efficientnet_lite0",
    weights: WeightsFile = None,
    assign: Assignments = None,
    partitions: Annotated[int, typer.Option(help="How many ways to divide the base classes.")] = 1,
    base_classes: Annotated[int, typer.Option(help="Pseudo-base classes; the rest is pseudo-novel.")] = 70,
    sessions: Annotated[int, typer.Option(help="How many pseudo-incremental sessions.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Where a JSON file of the comparison goes.")] = None,
    cache: Cache = None,
    device: Device = "cpu",
) -> None:
    """Compare settings without a test picture: on sessions carved from the base classes' training pictures."""
    with _clear_errors():
        network = pretrained(backbone, weights)
        plain = overridden(_setup(network, "protoquad", "default"), assign or [])
        candidates = [(tuple(chosen), overridden(plain, chosen)) for chosen in combinations(attempts)]
        stream = load(dataset, data)
        bench = _bench(network, cache, device, dataset, data)
        trials = compare(
            bench,
            stream.base,
            candidates,
            partitions=partitions,
            base_classes=base_classes,
            sessions=sessions,
            tried=lambda trial: console.print(_sentence(trial), highlight=False),
        )
    console.print(_trial_table(trials))
    if out:
        content = {
            "trials": [{"settings": trial.settings, "base": trial.base, "novel": trial.novel} for trial in trials],
            "partitions": partitions,
            "base_classes": base_classes,
            "sessions": sessions,
            "backbone": backbone,
            "dataset": dataset,
            **results.origin(),
        }
        results.write(out / "tune.json", content)


@app.command()
def cost(
    backbone: BackboneName = "efficientnet_lite0",
    out: Annotated[Path | None, typer.Option(help="Where a JSON file of the figures goes.")] = None,
) -> None:
    """Seconds and memory of one session, trunk included: by its size, and by the number of classes already there."""
    with _clear_errors():
        costs = measure_costs(backbone)
    table = Table("session", "past classes", "seconds", "peak memory, MB", title=f"one session on {backbone}")
    for entry in costs:
        size = f"{entry['ways']}-way {entry['shots']}-shot"
        table.add_row(size, str(entry["past"]), f"{entry['seconds']:.1f}", f"{entry['megabytes']:.0f}")
    console.print(table)
    if out:
        content = {"costs": costs, "backbone": backbone, **results.origin()}
        results.write(out / "cost.json", content)


@app.command()
def few_shots(
    dataset: Dataset = "cub200",
    data: Data = None,
    backbone: BackboneName = "efficientnet_lite0",
    draws: Annotated[int, typer.Option(help="How often classes and shots are drawn.", min=1)] = 60,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Where a JSON file of the figures goes.")] = None,
    cache: Cache = None,
    device: Device = "cpu",
) -> None:
    """What five shots a class are worth by themselves: accuracy, strangers refused, wrong shots found."""
    with _clear_errors():
        network = pretrained(backbone)
        stream = load(dataset, data)
        views = base_features(_bench(network, cache, device, dataset, data), stream.base)
        pictures = views.centre()  # as teaching sees them
        space = LearnerState.untaught(network).space
        accuracy = {
            "centre view": measure_accuracy(space, pictures, draws=draws, seed=seed),
            f"{views.views} views": measure_accuracy(space, views, draws=draws, seed=seed),
        }
        counts = [count for count in KNOWN_CLASSES if count < len(pictures.class_ids)]
        found = [measure_openness(space, pictures, count, draws=draws, seed=seed) for count in counts]
        outliers = measure_outliers(space, pictures, draws=10 * draws, seed=seed)  # each of one class only
    _show_few_shots(len(pictures.class_ids), accuracy, found, outliers, draws)
    if out:
        content = {
            "accuracy": accuracy,
            "openness": [asdict(entry) for entry in found],
            "outliers": asdict(outliers),
            "draws": draws,
            "seed": seed,
            "backbone": backbone,
            "dataset": dataset,
            **results.origin(),
        }
        results.write(out / "few-shots.json", content)


def _show_few_shots(
    classes: int, accuracy: dict[str, float], found: list[Openness], outliers: Outliers, draws: int
) -> None:
    table = Table("known classes", "accepted, %", "strangers refused, %", title=f"five shots a class, {draws} draws")
    for entry in found:
        table.add_row(str(entry.classes), f"{entry.accepted:.1f}", f"{entry.refused:.1f}")
    console.print(table)
    lines = [f"accuracy over {classes} classes, {seen} of each shot: {share:.1f} %" for seen, share in accuracy.items()]
    lines.append(f"of five right shots {outliers.false_alarms:.1f} % are called outliers")
    lines.append(f"of strangers among four right ones {outliers.found:.1f} % are")
    for line in lines:
        console.print(line, highlight=False)


def _setup(
    network: backbones.Backbone,
    method: str,
    preset: Preset,
    *,
    no_base: bool = False,
    views: int | None = None,
    gate: bool = True,
) -> Setup:
    base = BaseConfig() if network.pretrained else BaseConfig.from_scratch()
    incremental = IncrementalConfig.paper() if preset == "paper" else IncrementalConfig()
    if no_base:
        base = replace(base, epochs=0)
    # One input for the whole run: trunk activations, unless somebody trains the trunk.
    scope: Scope = "all" if "all" in (base.scope, incremental.scope) else "tail"
    return Setup(
        method=method,
        base=replace(base, scope=scope),
        incremental=replace(incremental, scope=scope),
        gate=gate and preset == "default",
        views=views if views is not None else 0 if no_base else Setup.views,
    )


def _bench(network: backbones.Backbone, cache: Path | None, device: str, dataset: str, data: Path | None) -> Bench:
    home = Path(os.environ.get("PROTOQUAD_HOME", ".protoquad"))
    return Bench(
        backbone=network,
        cache=cache or home / "bench",
        data_key=f"{dataset}:{data.resolve() if data else ''}",
        device=torch.device(device),
        display=TerminalDisplay(console),
    )


def _show(out: Path, title: str, dataset: str, result: RunResult, setup: Setup, about: dict[str, Any]) -> None:
    rivals = published(dataset)
    console.print(result_table(setup.method, result.evaluation, rivals))
    console.print(summary(result.evaluation), highlight=False)
    file = out / f"{title}.json"
    results.write(file, results.as_json(result, setup, about))
    picture = file.with_suffix(".png")
    plot_accuracy(picture, title, result.evaluation.accuracy, rivals, f"{dataset}: accuracy by session")
    console.print(f"figures: {file}\nplot:    {picture}", highlight=False)


def _title(method: str, backbone: str, metric: str, draw: int | None, *, no_base: bool) -> str:
    parts = [method, backbone.replace(":", "-"), metric]
    if no_base:
        parts.append("no-base")
    if draw is not None:
        parts.append(f"draw{draw}")
    return "-".join(parts)


def _sentence(trial: Trial) -> str:
    return f"{' '.join(trial.settings)}: base {trial.base:.2f}  novel {trial.novel:.2f}  score {trial.score:.2f}"


def _trial_table(trials: list[Trial]) -> Table:
    table = Table("settings", "base", "novel", "score", title="held-out training pictures of base classes, %")
    for trial in trials:
        table.add_row(" ".join(trial.settings), f"{trial.base:.2f}", f"{trial.novel:.2f}", f"{trial.score:.2f}")
    return table


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What a user can put right is a sentence on stderr and exit code 2, never a traceback."""
    try:
        yield
    except (ProtoquadError, ValueError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; what was computed is kept, run the same command to go on")
        raise typer.Exit(130) from None
