"""`protoquad bench settings`: every key that `--set` takes."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bench.commands.paper_command import PaperOptions
from bench.commands.run_options import RunOptions
from bench.commands.tune_command import TuneOptions
from bench.display import print_line
from bench.methods import Setup


def settings() -> None:
    """List every key of --set with its default: what a run computes, how it is made, what only tune or paper take."""
    run = list(_lines(RunOptions()))
    special = [line for line in (*_lines(TuneOptions()), *_lines(PaperOptions())) if line not in run]
    for line in (*_lines(Setup()), "", *run, "", *special):
        print_line(line)


def _lines(holder: Any, prefix: str = "") -> Iterator[str]:
    types = get_type_hints(type(holder))
    for field in fields(holder):
        key, value = prefix + field.name, getattr(holder, field.name)
        if is_dataclass(value):
            yield from _lines(value, f"{key}.")
        else:
            kind = types[field.name]
            choices = f"  ({', '.join(map(str, get_args(kind)))})" if get_origin(kind) is Literal else ""
            yield f"{key}={'' if value is None else value}{choices}"
