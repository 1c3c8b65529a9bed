"""`pq rollback`: make another version the active one."""

from dataclasses import asdict

import click

from protoquad_client.commands import terminal
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.plain_command import PlainCommand
from protoquad_client.commands.terminal import counted


@click.command(
    "rollback",
    cls=PlainCommand,
    short_help="Activate an older version, or a newer one.",
    examples=["pq rollback 12", "pq rollback 3 --model birds"],
)
@click.argument("number", type=click.IntRange(min=0))
@common_options()
def command(common: Common, number: int) -> None:
    """Activate version NUMBER, an older one or a newer one, on every replica. `pq versions` lists them.

    It answers as it did. Classes that were taught since then stay listed but are not served; classes that were deleted
    since then do not come back.
    """
    with common.client() as client:
        version = client.versions.activate(number)
        away = [] if common.as_json else [one.name for one in client.classes.list() if not one.served]
    if common.as_json:
        terminal.show_json(asdict(version))
        return
    made = "" if version.number == number else f", which is version {number} without the classes deleted since"
    terminal.show(f"version {version.number} is active{made}; it knows {counted(version.classes, 'class', 'classes')}")
    if away:
        terminal.show(f"not served by it: {terminal.listed(away)}")
