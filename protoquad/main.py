"""The `protoquad` command. A sub-command is imported only when it is used: importing torch alone takes two seconds.

The commands of the client are commands of this one too. Other distributions add some with an entry point in the group
`protoquad.commands`; `protoquad-bench` adds `bench`.
"""

import os
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from protoquad import client_commands
from protoquad.quick_imports import quick_imports

COMMANDS = {
    "serve": "protoquad.serve_command:serve",
    "worker": "protoquad.worker_command:worker",
    "worker-alive": "protoquad.worker_alive_command:worker_alive",
    "base": "protoquad.base_command:base",
    "folders": "protoquad.folders_command:folders",
    "backup": "protoquad.backup_command:backup",
    "export": "protoquad.archive_commands:export",
    "import": "protoquad.archive_commands:import_",
    "export-edge": "protoquad.export_edge_command:export_edge",
    "backbones": "protoquad.backbones_command:backbones",
    "doctor": "protoquad.doctor_command:doctor",
    "migrate": "protoquad.worker_command:migrate",
    "keys": "protoquad.keys_commands:app",
}
ENTRY_POINTS = "protoquad.commands"


class _LazyGroup(TyperGroup):
    def list_commands(self, _: Any) -> list[str]:
        own = [*COMMANDS, *client_commands.NAMES]
        return [*own, *sorted(entry_points(group=ENTRY_POINTS).names - set(own))]

    def get_command(self, _: Any, name: str) -> Any:
        if name in COMMANDS:
            return _own_command(name)
        if name in client_commands.NAMES:
            return client_commands.ClientCommand(name)
        return next((_command(name, point.load()) for point in entry_points(group=ENTRY_POINTS, name=name)), None)


def _own_command(name: str) -> Any:
    os.umask(0o077)  # these commands write files with images or digests of keys: readable by their owner only
    if name == "serve":  # threads that spin while they wait take cores from requests; torch reads this on import
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    module, attribute = COMMANDS[name].split(":")
    with quick_imports():
        imported = import_module(module)
    return _command(name, getattr(imported, attribute))


def _command(name: str, found: Any) -> Any:
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(pretty_exceptions_show_locals=False, add_completion=False)
        alone.command(name)(found)
        found = alone
    command = get_command(found)
    command.name = name
    return command


app = typer.Typer(
    name="protoquad",
    cls=_LazyGroup,
    help="Learns image classes from a handful of images and does not forget the ones it knew.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def _root() -> None:
    """Learns image classes from a handful of images and does not forget the ones it knew."""
