"""`protoquad worker-alive`: whether a worker on this home makes progress; a container's health check.

Reads the heartbeat files and nothing else, neither torch nor the database: it runs every few seconds.
"""

import typer

from protoquad.plain_errors import plain_errors, settings
from store.heartbeats import heartbeats


def worker_alive() -> None:
    """Exit with 0 if a worker on this home has made a step lately, else with 1."""
    with plain_errors():
        chosen = settings()
        ages = heartbeats(chosen.home)
    if not ages:
        typer.echo(f"no worker runs on {chosen.home}", err=True)
        raise typer.Exit(1)
    name, age = min(ages.items(), key=lambda item: item[1])
    if age > chosen.stall_seconds:
        problem = f"worker {name} has made no step for {age:.0f} s; {chosen.stall_seconds:g} s are allowed"
        typer.echo(problem, err=True)
        raise typer.Exit(1)
    typer.echo(f"worker {name} made a step {max(age, 0):.0f} s ago")
