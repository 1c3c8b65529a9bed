"""`protoquad bench paper`: every method of the paper's tables, its ablations and its claims, in one report."""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import results
from bench.commands.run_options import (
    BackboneName,
    Data,
    Dataset,
    RunOptions,
    Settings,
    make_context,
    make_network,
    make_setup,
)
from bench.datasets import Stream, load
from bench.display import QuietDisplay, print_line
from bench.methods import METHODS, Setup
from bench.overrides import override, split_settings
from bench.paper.claims import Claim, claims_of
from bench.paper.figures import Results
from bench.paper.measure import measure
from bench.paper.pages import Plot, html, markdown
from bench.paper.plan import chosen_methods, plan
from bench.paper.report import About, blocks_of
from core.backbones import Backbone
from protoquad.plain_errors import plain_errors


@dataclass(frozen=True)
class PaperOptions(RunOptions):
    """Also what the report has."""

    ablations: bool = True


def paper(
    dataset: Dataset = "cub200",
    data: Data = None,
    backbone: BackboneName = "efficientnet_lite0",
    methods: Annotated[str | None, typer.Option(help=f"Some of {', '.join(METHODS)}; all unless set.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws of the shots; the first is the standard one.")] = 4,
    out: Annotated[Path, typer.Option(help="The folder for the report.")] = Path("bench-results/paper"),
    settings: Settings = None,
) -> None:
    """All methods of the paper's tables on one data set, its ablations, and a verdict on each of its claims.

    Writes a Markdown page, an HTML page that needs no other file, and a JSON file. --set takes the settings of fscil,
    those of one method as lucir.rival.rate=0.03, and ablations=false.
    """
    with plain_errors("stopped; finished sessions are kept, run the same command to continue"):
        own, others = split_settings(settings or [], PaperOptions)
        options = override(PaperOptions(), own)
        if options.fresh:
            raise ValueError(
                "fresh=true would train the base session for every run; name an empty folder with cache=DIR"
            )
        names = chosen_methods(methods)
        network = make_network(backbone, options)
        setups = {name: _setup(network, name, options, others) for name in names}
        context = replace(make_context(network, options, dataset, data), display=QuietDisplay())

        @lru_cache(maxsize=1)
        def stream_of(draw: int | None) -> Stream:
            return load(dataset, data, draw=draw, seed=options.seed)

        planned = plan(setups, draws, ablations=options.ablations)
        measured = measure(context, planned, stream_of, print_line)
    claims = claims_of(measured, dataset)
    about = About(dataset, backbone, draws, results.commit())
    name = options.name or f"{dataset}-{backbone.replace(':', '-')}"
    _write(out, name, measured, claims, about)
    results.save(out, name, _content(measured, claims, about, setups))
    for claim in claims:
        print_line(f"{claim.verdict}: {claim.claim} ({claim.figure})")
    print_line(f"report: {out / name}.md, {out / name}.html, {out / name}.json")


def _setup(network: Backbone, method: str, options: RunOptions, settings: list[str]) -> Setup:
    """Settings for all methods, then those that begin with the name of this one."""
    seeds = [f"base.seed={options.seed}", f"incremental.seed={options.seed}"]
    for_all = [one for one in settings if one.partition(".")[0] not in METHODS]
    for_this = [one.partition(".")[2] for one in settings if one.partition(".")[0] == method]
    return override(make_setup(network, method, "default"), [*seeds, *for_all, *for_this])


def _write(folder: Path, name: str, measured: Results, claims: list[Claim], about: About) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    blocks = blocks_of(measured, claims, about)
    for plot in (block for block in blocks if isinstance(block, Plot)):
        (folder / f"{name}-{plot.name}.svg").write_text(plot.svg)
    (folder / f"{name}.md").write_text(markdown(blocks, name))
    (folder / f"{name}.html").write_text(html(blocks, name))


def _content(measured: Results, claims: list[Claim], about: About, setups: dict[str, Setup]) -> dict[str, Any]:
    return {
        **{key: value for key, value in asdict(about).items() if key != "commit"},
        "methods": {name: [asdict(run) for run in runs] for name, runs in measured.methods.items()},
        "ablations": {
            name: {value: asdict(run) for value, run in runs.items()} for name, runs in measured.ablations.items()
        },
        "claims": [asdict(claim) for claim in claims],
        "configuration": {name: {**asdict(setup), "rival": asdict(setup.values)} for name, setup in setups.items()},
    }
