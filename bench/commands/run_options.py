"""What the commands about accuracy share: their options, and the run they describe."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer

from bench.datasets import DATASETS
from bench.display import TerminalDisplay
from bench.fscil import RunContext
from bench.methods import Setup
from core import backbones
from core.base_session import BaseConfig
from core.incremental_session import IncrementalConfig
from core.views import Scope
from engine.compiled_module import Engine

Dataset = Annotated[str, typer.Option(help=f"One of {', '.join(DATASETS)}.")]
Data = Annotated[
    Path | None, typer.Option(help="The folder of the data set; not needed for shapes.", show_default=False)
]
BackboneName = Annotated[str, typer.Option(help=f"One of {', '.join(backbones.NAMES)}.")]
Out = Annotated[Path | None, typer.Option(help="The folder for a JSON file of the results.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; `protoquad bench settings` lists them."),
]
Preset = Literal["default", "paper", "no-base"]


@dataclass(frozen=True)
class RunOptions:
    """Settings of `--set` that say how a run is made; those in `Setup` say what it computes."""

    seed: int = 0  # of training, and of the partition of a folder
    name: str | None = None  # of the result files
    weights: Path | None = None  # a local file instead of the pretrained weights
    cache: Path | None = None  # for activations and weights; .protoquad/bench unless set
    device: str = "cpu"
    engine: Engine = "auto"  # what runs the network; compiling it takes longer than a run on few images
    fresh: bool = False  # train again what an earlier run has left in the cache


def make_setup(network: backbones.Backbone, method: str, preset: Preset) -> Setup:
    """`paper` trains as printed in the paper, without the gate; `no-base` keeps the pretrained weights."""
    base = BaseConfig() if network.pretrained else BaseConfig.from_scratch()
    incremental = IncrementalConfig.paper() if preset == "paper" else IncrementalConfig()
    # One input for the whole run: trunk activations, unless a session trains the trunk.
    scope: Scope = "all" if "all" in (base.scope, incremental.scope) else "tail"
    setup = Setup(
        method=method,
        base=replace(base, scope=scope),
        incremental=replace(incremental, scope=scope),
        gate=preset != "paper",
    )
    return replace(setup, base=replace(setup.base, epochs=0), views=0) if preset == "no-base" else setup


def make_context(network: backbones.Backbone, options: RunOptions, dataset: str, data: Path | None) -> RunContext:
    home = Path(os.environ.get("PROTOQUAD_HOME", ".protoquad"))
    return RunContext(
        backbone=network,
        cache=options.cache or home / "bench",
        data_key=str(data.resolve()) if data else dataset,  # whatever reads a folder, its images have the same keys
        device=torch.device(options.device),
        display=TerminalDisplay(),
        engine=options.engine,
    )
