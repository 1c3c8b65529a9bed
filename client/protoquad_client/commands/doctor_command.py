"""`pq doctor`: what is wrong with a service, as far as it can be seen over HTTP."""

import click

from protoquad_client.commands import exit_codes
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.findings import show_findings
from protoquad_client.commands.plain_command import PlainCommand
from protoquad_client.commands.service_findings import service_findings


@click.command(
    "doctor",
    cls=PlainCommand,
    short_help="Say what is wrong with a service.",
    examples=["pq doctor", "pq doctor --url https://owls.example.org --json"],
)
@common_options(model=False)
def command(common: Common) -> None:
    """Say what is wrong with a service: is it there, is the key valid, do workers work, is the clock right?

    Each line is ok, a warning or an error, with what to do; an error is exit code 1. On the machine of the service,
    `protoquad doctor` looks at its packages, database, disk and stored images too.
    """
    if not show_findings(service_findings(common.url, common.key), as_json=common.as_json):
        raise click.exceptions.Exit(exit_codes.FAILED)
