"""`protoquad keys …`: who may call the service."""

import os
from contextlib import AbstractContextManager
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from protoquad.plain_errors import Refused, plain_errors, settings
from protoquad.ready_database import ready_database
from store import api_keys
from store.database import Database

app = typer.Typer(help="API keys: create, ensure, list, revoke.", no_args_is_help=True, add_completion=False)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for, e.g. 'camera 3'.")] = "key",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="predict, teach (includes predict) or admin (includes both). Repeatable; admin unless set."),
    ] = None,
) -> None:
    """Make a key and print it once: the service stores only a digest."""
    with plain_errors(), _database() as database:
        scopes = scope or ["admin"]
        strange = [one for one in scopes if one not in api_keys.SCOPES]
        if strange:
            raise Refused(f"there is no scope '{strange[0]}'; there are {', '.join(api_keys.SCOPES)}")
        with database.write() as db:
            key = api_keys.create(db, name, scopes)
        typer.echo(key)
        Console(stderr=True).print(
            "Send it as `Authorization: Bearer …`. From now on every caller needs a key.", highlight=False
        )


@app.command()
def ensure(
    name: Annotated[str, typer.Argument(help="What it is for, e.g. 'first key'.")] = "key",
    scope: Annotated[list[str] | None, typer.Option(help="As for `create`.")] = None,
) -> None:
    """Store a digest of the key that PROTOQUAD_KEY holds. Safe to run again; a revoked key stays revoked."""
    with plain_errors(), _database() as database:
        key = os.environ.get("PROTOQUAD_KEY", "")
        if not key:
            raise Refused("PROTOQUAD_KEY is not set; it must hold the key to be stored")
        with database.write() as db:
            row = api_keys.ensure(db, key, name, scope or ["admin"])
        typer.echo(f"{row.id} ({row.name}) {'was revoked and stays so' if row.revoked_at else 'is valid'}")


@app.command("list")
def list_() -> None:
    """Show all keys, without their secrets."""
    with plain_errors(), _database() as database:
        with database.read() as db:
            keys = api_keys.everything(db)
        table = Table("id", "name", "scopes", "made", "revoked")
        for key in keys:
            revoked = f"{key.revoked_at:%Y-%m-%d %H:%M}" if key.revoked_at else ""
            table.add_row(key.id, key.name, key.scopes, f"{key.created_at:%Y-%m-%d %H:%M}", revoked)
        Console().print(table if keys else "no key was made; the service answers this machine only", highlight=False)


@app.command()
def revoke(own_id: Annotated[str, typer.Argument(metavar="ID", help="As `protoquad keys list` shows it.")]) -> None:
    """Make a key invalid, within seconds and permanently."""
    with plain_errors(), _database() as database:
        with database.write() as db:
            key = api_keys.revoke(db, own_id)
        typer.echo(f"{key.id} ({key.name}) is revoked")


def _database() -> AbstractContextManager[Database]:
    """Never a new one: a key made in the wrong folder would protect nothing."""
    return ready_database(settings(), may_create=False)
