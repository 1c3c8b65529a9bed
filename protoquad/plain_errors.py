"""Errors that a user can fix: a sentence on standard error and exit code 2, never a traceback."""

import sqlite3
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
from store.outages import is_full
from store.settings import Settings


class Refused(Exception):
    """The command cannot do what was asked; the message says why and what to do."""


@contextmanager
def plain_errors(stopped: str = "stopped") -> Iterator[None]:
    try:
        yield
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        _say(sentence)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        Console(stderr=True).print(stopped, highlight=False)
        raise typer.Exit(130) from None


def sentence_of(error: Exception) -> str | None:
    """What a user can put right, as a sentence; None for what nobody foresaw, which keeps its traceback."""
    if isinstance(error, Refused | ProtoquadError | StoreError | Busy | ArgumentError | ValueError):
        return str(error)
    if isinstance(error, DBAPIError) and is_state_of_database(error):
        return f"the database cannot be reached: {_first_line(error.orig)}"
    if isinstance(error, sqlite3.Error) and is_full(error):  # of an archive, which is written without SQLAlchemy
        return f"the disk is full ({error}); make room and try again"
    if isinstance(error, BrokenPipeError):  # the reader of the output has what it wants: typer ends without a word
        return None
    if isinstance(error, OSError) and error.strerror is not None:  # else not of the file system: a missing library
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return None


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
