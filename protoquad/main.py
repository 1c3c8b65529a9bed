"""The `protoquad` command."""

import typer

from protoquad import archive_commands, base_command, bench_commands, keys_commands, serve_command, worker_command

app = typer.Typer(
    name="protoquad",
    help="Learns image classes from a handful of pictures and does not forget the ones it knew.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command()(serve_command.serve)
app.command()(worker_command.worker)
app.command()(base_command.base)
app.command()(archive_commands.export)
app.command("import")(archive_commands.import_)
app.command()(worker_command.migrate)
app.add_typer(keys_commands.app, name="keys")
app.add_typer(bench_commands.app, name="bench")
