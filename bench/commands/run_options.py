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
from engine.pretrained import pretrained

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
SMALL = 64  # px: images of at most this size are moved by pixels instead of cut in views
FEW_VIEWS = 4  # where the base session does not need them
Preset = Literal["default", "paper", "no-base"]


@dataclass(frozen=True)
class RunOptions:
    """Settings of `--set` that say how a run is made; those in `Setup` say what it computes."""

    seed: int = 0  # of training, and of the partition of a folder
    name: str | None = None  # of the result files
    weights: Path | None = None  # a local file instead of the pretrained weights
    size: int | None = None  # side of the images in pixels, whole and not cropped, instead of the backbone's own
    cache: Path | None = None  # for activations and weights; .protoquad/bench unless set
    device: str = "cpu"
    engine: Engine = "auto"  # what runs the network; compiling it takes longer than a run on few images
    fresh: bool = False  # train again what an earlier run has left in the cache


def make_setup(network: backbones.Backbone, method: str, preset: Preset) -> Setup:
    """`paper` trains as printed in the paper, without the gate; `no-base` keeps the pretrained weights."""
    base = BaseConfig() if network.pretrained else _from_scratch(network)
    incremental = IncrementalConfig.paper() if preset == "paper" else IncrementalConfig()
    # One input for the whole run: trunk activations, unless a session trains the trunk.
    scope: Scope = "all" if "all" in (base.scope, incremental.scope) else "tail"
    setup = Setup(
        method=method,
        base=replace(base, scope=scope),
        incremental=replace(incremental, scope=scope),
        gate=preset != "paper",
    )
    if preset == "no-base":
        return replace(setup, base=replace(setup.base, epochs=0), views=0)
    return replace(setup, views=FEW_VIEWS) if base.augment == "shift" else setup


def make_network(backbone: str, options: RunOptions) -> backbones.Backbone:
    network = pretrained(backbone, options.weights)
    if options.size is not None:
        network.framing = replace(network.framing, size=options.size, crop_ratio=1.0)
    return network


def _from_scratch(network: backbones.Backbone) -> BaseConfig:
    return BaseConfig.small_images() if network.framing.size <= SMALL else BaseConfig.from_scratch()


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
