"""The `protoquad` command. Each sub-command is imported only when it is asked for: torch alone takes two seconds."""

import os
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

COMMANDS = {
    "serve": "protoquad.serve_command:serve",
    "worker": "protoquad.worker_command:worker",
    "worker-alive": "protoquad.worker_alive_command:worker_alive",
    "base": "protoquad.base_command:base",
    "backup": "protoquad.backup_command:backup",
    "export": "protoquad.archive_commands:export",
    "import": "protoquad.archive_commands:import_",
    "doctor": "protoquad.doctor_command:doctor",
    "migrate": "protoquad.worker_command:migrate",
    "keys": "protoquad.keys_commands:app",
    "bench": "bench.commands.accuracy:app",
}


class _OnDemand(TyperGroup):
    def list_commands(self, _: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: Any, name: str) -> Any:
        if name not in COMMANDS:
            return None
        if name != "bench":  # all others write files with images or digests of keys in them: for their owner alone
            os.umask(0o077)
        if name == "serve":  # threads that spin while they wait take cores from answers; torch reads this on import
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        module, attribute = COMMANDS[name].split(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(pretty_exceptions_show_locals=False, add_completion=False)
            alone.command(name)(found)
            found = alone
        command = get_command(found)
        command.name = name
        return command


app = typer.Typer(
    name="protoquad",
    cls=_OnDemand,
    help="Learns image classes from a handful of pictures and does not forget the ones it knew.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def _root() -> None:
    """Learns image classes from a handful of pictures and does not forget the ones it knew."""
