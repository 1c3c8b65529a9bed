"""`pq watch`: what happens to a model, live."""

import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import click

from protoquad_client import Client, NotFound
from protoquad_client.commands import exit_codes, terminal
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.plain_command import PlainCommand
from protoquad_client.commands.session_text import progress_text

CLEAR_LINE = "\r\x1b[K"


@click.command(
    "watch",
    cls=PlainCommand,
    codes=(exit_codes.OK, exit_codes.FAILED, exit_codes.WRONG_USE),
    examples=["pq watch", "pq watch --model birds --json"],
    short_help="Watch sessions, versions and teaching, live.",
)
@common_options(json_help="Print a JSON object for each event, one a line.")
def command(common: Common) -> None:
    """Watch what happens to a model: sessions with their stage and losses, new versions, what is taught.

    It reconnects by itself and goes on until Ctrl-C, which ends it with exit code 0.
    """
    try:
        with common.client() as client:
            if common.as_json:
                for event in client.events():
                    terminal.show_json_line({"event": event.name, **event.data})
            else:
                _watch(client, common.url)
    except KeyboardInterrupt:  # the way in which it is meant to end
        click.echo("", err=True)


def _watch(client: Client, url: str) -> None:
    active = next(one.number for one in client.versions.list() if one.active)
    terminal.note(f"watching model '{client.model_name}' at {url}; version {active} is active; Ctrl-C ends it")
    lines, names = _Lines(), _Names(client)
    for session in client.sessions.list().first().items:
        if not session.over:
            lines.add(f"session {session.id} {session.status}")
    for event in client.events():
        if event.name == "session" and event.data.get("event") == "progress":
            lines.update(_session_text(event.data, names))
        elif event.name in _TEXTS:  # a newer service may have others
            lines.add(_TEXTS[event.name](event.data, names))


class _Lines:
    """Progress stays on one line of a terminal; elsewhere everything has a line of its own."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty()
        self.unfinished = False

    def add(self, text: str) -> None:
        self._clear()
        terminal.show(_timed(text))

    def update(self, text: str) -> None:
        if not self.live:
            self.add(text)
            return
        self._clear()
        click.echo(_timed(text)[: shutil.get_terminal_size().columns - 1], nl=False)
        self.unfinished = True

    def _clear(self) -> None:
        if self.unfinished:
            click.echo(CLEAR_LINE, nl=False)
        self.unfinished = False


class _Names:
    """Events have ids of classes; people want names."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.known: dict[int, str] = {}

    def of(self, class_id: int | None) -> str:
        if class_id is None:
            return "a class"
        if class_id not in self.known:
            try:
                self.known[class_id] = f"'{terminal.printable(self.client.classes.get(class_id).name)}'"
            except NotFound:  # deleted meanwhile
                return f"class {class_id}"
        return self.known[class_id]


def _timed(text: str) -> str:
    return f"{datetime.now().strftime('%H:%M:%S')}  {text}"


def _session_text(data: Mapping[str, Any], _: _Names) -> str:
    what = f"session {data.get('session')}"
    event = data.get("event")
    if event == "progress":
        return f"{what}  {progress_text(data)}"
    if event == "succeeded":
        because = f": {data['reason']}" if data.get("reason") else ""
        return f"{what} succeeded, {data.get('verdict')}{because}"
    error = f": {data['error']}" if data.get("error") else ""
    return f"{what} {event}{error}"


def _version_text(data: Mapping[str, Any], _: _Names) -> str:
    verdict = f", {data['verdict']}" if data.get("verdict") else ""
    return f"version {data.get('version')} ({data.get('kind')}{verdict})"


_TEXTS: dict[str, Callable[[Mapping[str, Any], _Names], str]] = {
    "session": _session_text,
    "version": _version_text,
    "head": lambda data, _: f"version {data.get('version')} is active",
    "taught": lambda data, names: f"{names.of(data.get('class_id'))} was taught or changed",
    "deleted": lambda data, names: f"{names.of(data.get('class_id'))} was deleted",
    "renamed": lambda *_: "a class was renamed",
    "inbox": lambda data, _: f"the inbox has {terminal.counted(data.get('total', 0), 'image')}",
}
