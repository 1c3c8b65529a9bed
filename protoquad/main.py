"""The `protoquad` command."""

import typer

from protoquad import bench_commands

app = typer.Typer(
    name="protoquad",
    help="Learns image classes from a handful of pictures and does not forget the ones it knew.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(bench_commands.app, name="bench")
