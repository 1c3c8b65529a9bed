"""What `teach` prints: progress while it teaches, and afterwards what was taught and what was refused, and why."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import click

from protoquad_client import Session
from protoquad_client.commands.class_folders import ClassFolder, ClassFolders
from protoquad_client.commands.class_teaching import Outcome
from protoquad_client.commands.image_files import Refusal
from protoquad_client.commands.session_text import session_json, session_text
from protoquad_client.commands.terminal import counted, is_terminal, printable, show

DONE = ("taught", "added", "known")
SHOWN = 20  # images of a kind that are listed; --json lists all


@contextmanager
def one_by_one(classes: Sequence[ClassFolder], *, quiet: bool) -> Iterator[Callable[[Outcome], None]]:
    """The callback takes each outcome: a bar with the remaining time on a terminal, otherwise a line for each class."""
    if is_terminal() and len(classes) > 1:
        bar = click.progressbar(
            length=len(classes), label="teaching", file=sys.stderr, show_pos=True, item_show_func=_name_of
        )
        with bar:
            yield lambda outcome: bar.update(1, outcome)
    else:
        yield (lambda _: None) if quiet or len(classes) == 1 else _show_line


def _name_of(outcome: Outcome | None) -> str:
    return printable(outcome.name) if outcome else ""


def _show_line(outcome: Outcome) -> None:
    show(f"'{printable(outcome.name)}' {outcome.text}")


@dataclass(frozen=True)
class Report:
    found: ClassFolders
    outcomes: Sequence[Outcome]
    session: Session | None  # that was waited for
    pretended: bool

    @property
    def refused(self) -> list[Refusal]:
        return [*self.found.refused, *(refusal for one in self.outcomes for refusal in one.refused)]

    @property
    def complete(self) -> bool:
        return not self.found.refused and all(one.complete for one in self.outcomes)

    @property
    def failure(self) -> str | None:
        """Why nothing at all was done, if so."""
        if any(one.state in DONE for one in self.outcomes):
            return None
        if len(self.outcomes) == 1:
            return f"'{printable(self.outcomes[0].name)}' {self.outcomes[0].text}"
        return "no class was taught"

    @property
    def failure_of_session(self) -> str | None:
        """Why there is no refined version, if one was waited for; what was taught is served all the same."""
        return session_text(self.session) if self.session and self.session.status != "succeeded" else None

    def as_json(self) -> dict[str, Any]:
        return {
            "classes": [asdict(one) for one in self.outcomes],
            "refused": [asdict(one) for one in self.found.refused],  # those that belong to no class
            "not_images": self.found.left_out,
            "session": session_json(self.session) if self.session else None,
        }

    def show(self) -> None:
        if len(self.outcomes) > 1:
            self._show_summary()
        elif not self.failure:
            show(f"'{printable(self.outcomes[0].name)}' {self.outcomes[0].text}{_where(self.outcomes[0])}")
        self._show_doubts()
        if self.found.left_out:
            show(f"{counted(self.found.left_out, 'file')} left out: not images by their names")
        left_out = sum(one.left_out for one in self.outcomes)
        if left_out:
            show(f"{counted(left_out, 'image')} left out: more than the service takes of a class or in a request")
        if self.session and not self.failure_of_session:
            show(session_text(self.session))

    def _show_summary(self) -> None:
        would = "would be " if self.pretended else ""
        for state, text in (
            ("taught", f"{would}taught"),
            ("added", f"{would}given more images"),
            ("known", "known already"),
        ):
            found = [one for one in self.outcomes if one.state == state]
            if found:
                images = counted(sum(one.images for one in found), "image")
                show(f"{counted(len(found), 'class', 'classes')} {text}, {images}")
        for one in self.outcomes:
            if one.state not in DONE:
                show(f"{'incomplete' if one.images else 'not taught'}: '{printable(one.name)}' {one.text}")

    def _show_doubts(self) -> None:
        outliers = [one for outcome in self.outcomes for one in outcome.outliers]
        for found, what in ((self.refused, "refused"), (outliers, "taught, but doubtful")):
            if found:
                show(f"{counted(len(found), 'image')} {what}:")
            for one in found[:SHOWN]:
                show(f"  {printable(one.image)}: {one.reason}")
            if len(found) > SHOWN:
                show(f"  and {len(found) - SHOWN:,} more; --json lists all")


def _where(outcome: Outcome) -> str:
    if outcome.version is None:
        return ""
    return f"; version {outcome.version} knows it, session {outcome.session} refines it"
