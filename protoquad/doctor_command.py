"""`protoquad doctor`: what is wrong with this installation, with all that is stored, and with the service that runs."""

from collections.abc import Iterator
from typing import Annotated

import typer
from protoquad_client.commands.findings import Finding, show_findings
from protoquad_client.commands.service_findings import service_findings

from protoquad import home_folder
from protoquad.doctor_checks import backbone_finding, stored_findings
from protoquad.home_lock import only_service
from protoquad.installation_findings import (
    address_of,
    package_findings,
    port_finding,
    redis_finding,
    worker_findings,
)
from protoquad.plain_errors import plain_errors, settings
from protoquad.whole_files import embedded_file
from store.settings import Settings


def doctor(
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Remove the access rights of other users, and overwrite images that an earlier release deleted "
            "(for which the service must be stopped).",
        ),
    ] = False,
    url: Annotated[
        str | None,
        typer.Option(envvar="PROTOQUAD_URL", help="Address of the service; the one that the settings say unless set."),
    ] = None,
    key: Annotated[str | None, typer.Option(envvar="PROTOQUAD_KEY", help="API key of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Say what is wrong with this installation: packages, home, database, every stored image, every model, backbones,
    Redis, the port, workers, and the service itself if it runs.

    Nothing is changed without --fix, and the service may run meanwhile. Each finding is ok, a warning or an error, with
    what to do. Exits with 0 if there is no error, with 1 if there is one, and with 2 if the settings cannot be used.
    """
    with plain_errors():
        chosen = settings()
        if not show_findings(_findings(chosen, url, key, fix=fix), as_json=as_json):
            raise typer.Exit(1)


def _findings(chosen: Settings, url: str | None, key: str | None, *, fix: bool) -> Iterator[Finding]:
    if fix:
        yield from _fix(chosen)
    yield from package_findings()
    yield from stored_findings(chosen)
    yield backbone_finding(chosen.prepared)
    yield redis_finding(chosen.broker_url)
    yield from worker_findings(chosen)
    yield port_finding(chosen)
    # A service that does not run may be meant to: then nothing is wrong with it.
    yield from service_findings(url or address_of(chosen), key, if_away="error" if url else "warning")


def _fix(chosen: Settings) -> Iterator[Finding]:
    file = embedded_file(chosen)
    paths = home_folder.too_open(chosen.home, file)
    home_folder.close_to_others(paths)
    for path in paths:
        yield Finding("ok", "fixed", f"{path.absolute()} is now readable by its owner only")
    if file is not None and home_folder.may_hold_deleted(file):
        with only_service(chosen.home):
            home_folder.overwrite_deleted(file)
        yield Finding("ok", "fixed", f"{file} was rebuilt from what is in it: deleted images are overwritten")
