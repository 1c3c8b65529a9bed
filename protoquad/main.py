"""The `protoquad` command."""

import typer

from protoquad import bench_commands, keys_commands, serve_command, worker_command

app = typer.Typer(
    name="protoquad",
    help="Learns image classes from a handful of pictures and does not forget the ones it knew.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command()(serve_command.serve)
app.command()(worker_command.worker)
app.command()(worker_command.migrate)
app.add_typer(keys_commands.app, name="keys")
app.add_typer(bench_commands.app, name="bench")
