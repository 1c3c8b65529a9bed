"""The program `pq`. A command is imported when it is used or listed."""

from importlib import import_module

import click

from protoquad_client.config import RELEASE

NAMES = ("teach", "predict", "watch", "classes", "versions", "rollback", "correct", "inbox", "doctor", "completion")


def command_named(name: str) -> click.Command:
    found: click.Command = import_module(f"protoquad_client.commands.{name}_command").command
    return found


class _Commands(click.Group):
    def list_commands(self, _: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        return command_named(name) if name in NAMES else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(RELEASE, message="%(version)s")
def pq() -> None:
    """Teach a protoquad service classes of images, and ask it what is on others.

    The service is at --url or PROTOQUAD_URL; its key, if it needs one, is --key or PROTOQUAD_KEY.
    """
