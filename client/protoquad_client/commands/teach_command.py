"""`pq teach`: a class from a few images, or many classes from a folder or zip of class folders."""

from functools import wraps
from pathlib import Path
from typing import Any

import click

from protoquad_client import Client, Session, WaitTimeout
from protoquad_client.commands import exit_codes, terminal
from protoquad_client.commands.class_folders import ClassFolder, ClassFolders, class_name, read_class_folders
from protoquad_client.commands.class_teaching import ClassTeaching, Outcome
from protoquad_client.commands.common_options import Common, common_options
from protoquad_client.commands.image_files import UnusableSource, find_images
from protoquad_client.commands.plain_command import Failure, PlainCommand, WrongUse
from protoquad_client.commands.teaching_report import Report, one_by_one

FOR_EVER = float("inf")  # seconds
EXISTING = click.Path(exists=True, path_type=Path)


def _wait_options(function: Any) -> Any:
    """The function gets one argument for them: `wait`, in seconds, None if not at all."""

    @wraps(function)
    def run(*args: Any, wait: bool, timeout: float | None, **named: Any) -> Any:
        return function(*args, wait=timeout or (FOR_EVER if wait else None), **named)

    positive = click.FloatRange(min=0, min_open=True)
    text = "Wait for it at most this long; exit code 1 if it is not over then."
    decorated = click.option("--timeout", type=positive, metavar="SECONDS", help=text)(run)
    return click.option("--wait", is_flag=True, help="Wait for the session that refines what was taught.")(decorated)


@click.command(
    "teach",
    cls=PlainCommand,
    codes=exit_codes.MEANINGS,
    short_help="Teach a class with images, or many from folders.",
    examples=[
        "pq teach owl owls/                      # all images of the folder",
        "pq teach owl 6.jpg 7.jpg --add          # more shots of a class that exists",
        "pq teach --folders birds/ --limit 5     # a class for each folder in it",
        "pq teach --folders birds.zip --dry-run  # only say what would be taught",
    ],
)
@click.argument("name", required=False)
@click.argument("paths", nargs=-1, type=EXISTING)
@click.option("--folders", type=EXISTING, help="Folder or zip that holds one folder of images for each class.")
@click.option("--add", is_flag=True, help="Add the images to classes that exist already.")
@click.option("--limit", type=click.IntRange(min=1), help="Take at most this many images of each class.")
@click.option("--dry-run", is_flag=True, help="Say what would be taught, and teach nothing.")
@_wait_options
@common_options()
def command(
    common: Common,
    name: str | None,
    paths: tuple[Path, ...],
    folders: Path | None,
    add: bool,
    limit: int | None,
    dry_run: bool,
    wait: float | None,
) -> None:
    """Teach the class NAME with images: files, or folders of them. Five are advised.

    With --folders, teach a class for each folder. It may be stopped at any moment and started again: it goes on where
    it stopped, and no class is taught twice. Images that cannot be used are named; the others are taught.
    """
    if (folders is None) == (name is None) or (name is not None and not paths):
        raise click.UsageError("name a class and its images, as in `teach owl owls/`, or use --folders alone")
    found = _found(name, paths, folders, limit)
    with common.client() as client:
        outcomes = _taught(ClassTeaching(client, add=add, pretend=dry_run), found, quiet=common.as_json)
        session = _refining_session(client, outcomes, wait) if wait and not dry_run else None
        report = Report(found, outcomes, session, pretended=dry_run)
    if common.as_json:
        terminal.show_json(report.as_json())
    else:
        report.show()
    if report.failure or report.failure_of_session:
        raise Failure(report.failure or report.failure_of_session or "")
    if not report.complete:
        raise click.exceptions.Exit(exit_codes.PARTLY)


def _found(name: str | None, paths: tuple[Path, ...], folders: Path | None, limit: int | None) -> ClassFolders:
    try:
        if folders is not None:
            return read_class_folders(folders, limit)
        found = find_images(paths)
        if not found.images:
            raise UnusableSource(f"there are no images in {', '.join(map(str, paths))}")
        only = ClassFolder(class_name(name or ""), found.images[:limit])
        return ClassFolders((only,), (), found.left_out)
    except UnusableSource as error:
        raise WrongUse(str(error)) from error


def _taught(teaching: ClassTeaching, found: ClassFolders, *, quiet: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        with one_by_one(found.classes, quiet=quiet) as progress:
            for folder in found.classes:
                outcomes.append(teaching.teach(folder))
                progress(outcomes[-1])
    except BaseException:
        if len(found.classes) > 1:
            done = f"{len(outcomes):,} of {len(found.classes):,} classes are done"
            terminal.note(f"{done}; the same command again goes on there")
        raise
    return outcomes


def _refining_session(client: Client, outcomes: list[Outcome], seconds: float) -> Session | None:
    """The session that refines all that was taught: the newest. Over, unless there is no more time."""
    number = max((one.session for one in outcomes if one.session is not None), default=None)
    if number is None:  # all was known: an earlier run may have been stopped while it waited
        number = next((one.id for one in client.sessions.list().first().items if not one.over), None)
    if number is None:
        return None
    if terminal.is_terminal():
        terminal.note(f"waiting for session {number}")
    try:
        return client.sessions.wait(number, None if seconds == FOR_EVER else seconds)
    except WaitTimeout:
        return client.sessions.get(number)
