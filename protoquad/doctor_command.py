"""`protoquad doctor`: checks that everything stored is still there, undamaged, and readable by its owner only."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from protoquad import home_folder
from protoquad.doctor_checks import Finding, backbone_finding, database_findings, home_findings
from protoquad.home_lock import only_service
from protoquad.plain_errors import plain_errors, settings
from protoquad.ready_database import opened_database
from protoquad.whole_files import embedded_file
from store.settings import Settings

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red", "fixed": "green"}


def doctor(
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Remove the access rights of other users, and overwrite images that an earlier release deleted "
            "(for which the service must be stopped).",
        ),
    ] = False,
) -> None:
    """Check the home folder, the database, every stored image, every model and the prepared backbones.

    Nothing is changed without --fix, and the service may run meanwhile. Exits with 0 if there is no problem, with 1 if
    there is one, and with 2 if something must be fixed before it can check.
    """
    with plain_errors():
        chosen = settings()
        file = embedded_file(chosen)
        if fix:
            _fix(chosen, file)
        states = [_show(finding) for finding in _findings(chosen)]
        if "problem" in states:
            raise typer.Exit(1)


def _findings(chosen: Settings) -> Iterator[Finding]:
    yield from home_findings(chosen)
    with opened_database(chosen, may_create=False) as database:
        yield from database_findings(database)
    yield backbone_finding(chosen.prepared)


def _fix(chosen: Settings, file: Path | None) -> None:
    paths = home_folder.too_open(chosen.home, file)
    home_folder.close_to_others(paths)
    for path in paths:
        _print("fixed", "home", f"{path.absolute()} is now readable by its owner only")
    if file is not None and home_folder.may_hold_deleted(file):
        with only_service(chosen.home):
            home_folder.overwrite_deleted(file)
        _print("fixed", "deleted images", f"{file} was rebuilt from what is in it")


def _show(finding: Finding) -> str:
    _print(finding.state, finding.what, finding.text)
    return finding.state


def _print(state: str, what: str, text: str) -> None:
    line = f"[{COLOURS[state]}]{state:<8}[/] {what:<15} {escape(text)}"
    Console().print(line, highlight=False, soft_wrap=True)
