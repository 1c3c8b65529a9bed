"""How commands print: results on standard output, everything else on standard error, colours on a terminal only."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click


def show(text: str = "") -> None:
    """What standard output cannot encode, as on a Windows that is not set to UTF-8, is escaped."""
    click.echo(text.encode(_encoding(), "backslashreplace").decode(_encoding()))


def note(text: str) -> None:
    """What a person wants to know and a program that reads the output does not."""
    click.echo(text, err=True)


def show_json(value: Any) -> None:
    """A whole document, indented."""
    show(_json(value, indent=1))


def show_json_line(value: Any) -> None:
    """One of many, each on a line of its own."""
    show(_json(value))


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)
    return text if is_text(text, _encoding()) else json.dumps(value, indent=indent, default=_plain)


def _encoding() -> str:
    return sys.stdout.encoding or "utf-8"


def is_text(text: str, encoding: str = "utf-8") -> bool:
    """The name of a file need not be."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Aligned, and never cut to the width of a terminal: what is shown can be copied whole."""
    lines = [list(headings), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, cells in enumerate(lines):
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        show(styled(line, bold=True) if number == 0 else line)


def styled(text: str, **style: Any) -> str:
    """Where it does not go to a terminal, click takes the style away again."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def printable(text: str) -> str:
    """The names of files are others' texts: a control character in one could change what the terminal shows."""
    return "".join(character if character.isprintable() else "?" for character in text)


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(f"'{printable(name)}'" for name in names[:shown]) + more


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def local_time(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def is_terminal() -> bool:
    """Whether a person watches standard error, where progress is shown."""
    return sys.stderr.isatty()
