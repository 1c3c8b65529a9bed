"""`protoquad bench`: the commands, one function each. The command line finds `app` through an entry point."""

import typer

from bench.commands.checkouts_command import checkouts
from bench.commands.console_command import console
from bench.commands.cost_command import cost
from bench.commands.few_shots_command import few_shots
from bench.commands.fscil_command import fscil
from bench.commands.load_command import load
from bench.commands.newcomer_command import newcomer
from bench.commands.paper_command import paper
from bench.commands.service_commands import classes, client, overheads, swaps, teaching
from bench.commands.settings_command import settings
from bench.commands.tune_command import tune
from bench.commands.views_command import views

app = typer.Typer(
    help="Benchmarks. Each prints a table and can write a JSON file with the command that repeats it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
COMMANDS = (
    *(fscil, paper, newcomer, tune, few_shots, views, settings, cost),
    *(load, teaching, swaps, classes, client, console, overheads, checkouts),
)
for command in COMMANDS:
    app.command()(command)
