"""`pq versions`: the history of a model."""

from dataclasses import asdict
from itertools import islice

import click

from protoquad_client import Version
from protoquad_client.commands import terminal
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.plain_command import PlainCommand

HEADINGS = ("version", "kind", "classes", "accuracy", "forgetting", "verdict", "made")
NEWEST = 20


@click.command(
    "versions",
    cls=PlainCommand,
    short_help="List the versions of a model.",
    examples=["pq versions", "pq versions --all --json"],
)
@click.option("--all", "everything", is_flag=True, help=f"All versions, not the newest {NEWEST} only.")
@common_options()
def command(common: Common, everything: bool) -> None:
    """List the versions of a model, newest first; * is the active one.

    Accuracy: percent of old and of new held-out images. Forgetting: points lost on old classes. A version that is not
    kept cannot be activated any more.
    """
    with common.client() as client:
        found = list(islice(client.versions.list(), None if everything else NEWEST + 1))
    more = not everything and len(found) > NEWEST
    found = found if everything else found[:NEWEST]
    if common.as_json:
        terminal.show_json([asdict(one) for one in found])
    else:
        terminal.show_table(HEADINGS, [_cells(one) for one in found])
        if more:
            terminal.note(f"the newest {NEWEST}; --all lists the others too")


def _cells(one: Version) -> tuple[str, ...]:
    accuracy = [f"{name} {value:.1f}" for name, value in (one.accuracy or {}).items() if value is not None]
    forgetting = "-" if one.forgetting is None else f"{one.forgetting:.1f}"
    verdict = one.verdict or "-"
    return (
        f"{one.number}{'*' if one.active else ''}",
        one.kind,
        str(one.classes),
        ", ".join(accuracy) or "-",
        forgetting,
        verdict if one.kept else f"{verdict}, not kept",
        terminal.local_time(one.created_at),
    )
