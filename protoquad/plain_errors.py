"""What a user can put right is a sentence on standard error and exit code 2, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from sqlalchemy.exc import OperationalError

from core.errors import ProtoquadError
from store.errors import StoreError
from store.settings import Settings


class Refused(Exception):
    """The command cannot do what it was asked; the text says why and what to do."""


@contextmanager
def plain_errors(stopped: str = "stopped") -> Iterator[None]:
    try:
        yield
    except (Refused, ProtoquadError, StoreError, ValueError) as error:
        _say(str(error))
        raise typer.Exit(2) from error
    except OperationalError as error:
        _say(f"the database cannot be reached: {str(error.orig).splitlines()[0]}")
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        Console(stderr=True).print(stopped, highlight=False)
        raise typer.Exit(130) from None


def settings(**given: object) -> Settings:
    """Settings from the environment, with what was given on the command line in front."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        problems = [f"PROTOQUAD_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors()]
        raise Refused(f"a setting cannot be used: {'; '.join(problems)}") from error


def _say(text: str) -> None:
    Console(stderr=True).print(f"[red]error:[/red] {escape(text)}", highlight=False, soft_wrap=True)
