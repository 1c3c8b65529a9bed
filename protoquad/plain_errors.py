"""Errors that a user can fix: a sentence on standard error and exit code 2, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, OperationalError

from core.errors import ProtoquadError
from engine.single_flight import Busy
from store.errors import StoreError
from store.settings import Settings


class Refused(Exception):
    """The command cannot do what was asked; the message says why and what to do."""


@contextmanager
def plain_errors(stopped: str = "stopped") -> Iterator[None]:
    try:
        yield
    except (Refused, ProtoquadError, StoreError, Busy, ArgumentError, ValueError) as error:
        _say(str(error))
        raise typer.Exit(2) from error
    except DBAPIError as error:
        if not is_state_of_database(error):
            raise
        _say(f"the database cannot be reached: {_first_line(error.orig)}")
        raise typer.Exit(2) from error
    except OSError as error:
        if error.strerror is None:  # not of the file system: a library that does not load, for instance
            raise
        _say(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        Console(stderr=True).print(stopped, highlight=False)
        raise typer.Exit(130) from None


def is_state_of_database(error: DBAPIError) -> bool:
    """Whether the database is away, damaged or cannot be connected to; otherwise the statement itself is wrong."""
    connecting = error.statement is None
    return connecting or type(error) is DatabaseError or isinstance(error, OperationalError | InterfaceError)


def settings(**given: object) -> Settings:
    """Settings from the environment, with what was given on the command line in front."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        problems = [
            f"PROTOQUAD_{'_'.join(map(str, e['loc'])).upper()}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors()
        ]
        raise Refused(f"a setting cannot be used: {'; '.join(problems)}") from error


def _first_line(error: BaseException | None) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _say(text: str) -> None:
    Console(stderr=True).print(f"[red]error:[/red] {escape(text)}", highlight=False, soft_wrap=True)
