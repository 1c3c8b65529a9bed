"""`pq classes`: what a model knows."""

from dataclasses import asdict
from typing import Literal

import click

from protoquad_client import Class
from protoquad_client.commands import terminal
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.plain_command import PlainCommand

HEADINGS = ("id", "name", "shots", "status", "accuracy", "taught")


@click.command(
    "classes",
    cls=PlainCommand,
    short_help="List the classes of a model.",
    examples=["pq classes", "pq classes --search owl", "pq classes --sort accuracy --order asc"],
)
@click.option("--search", help="Only classes with this in their names, in any case.")
@click.option("--sort", type=click.Choice(["created", "name", "accuracy", "shots"]), help="In which order.")
@click.option("--order", type=click.Choice(["asc", "desc"]), help="Smallest or largest first.")
@common_options()
def command(
    common: Common,
    search: str | None,
    sort: Literal["created", "name", "accuracy", "shots"] | None,
    order: Literal["asc", "desc"] | None,
) -> None:
    """List the classes of a model, in the order in which they were taught unless another is asked for.

    Accuracy: how many shots the active version answers right while they are held out.
    """
    with common.client() as client:
        found = list(client.classes.list(search=search, sort=sort, order=order))
    if common.as_json:
        terminal.show_json([asdict(one) for one in found])
    elif found:
        terminal.show_table(HEADINGS, [_cells(one) for one in found])
    else:
        terminal.note("no class has that in its name" if search else "nothing was taught yet; `pq teach` does that")


def _cells(one: Class) -> tuple[str, ...]:
    accuracy = f"{one.accuracy.right} of {one.accuracy.images}" if one.accuracy else "-"
    status = one.status if one.served else f"{one.status}, not served"
    return str(one.id), one.name, str(one.shots), status, accuracy, terminal.local_time(one.created_at)
