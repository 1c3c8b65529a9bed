"""What a check found, and how `doctor` shows it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from protoquad_client.commands import terminal

State = Literal["ok", "warning", "error"]
COLOURS: dict[State, str] = {"ok": "green", "warning": "yellow", "error": "red"}
WIDTH_OF_STATE, WIDTH_OF_WHAT = 8, 15


@dataclass(frozen=True)
class Finding:
    state: State
    what: str
    text: str  # what is true, and what to do if it is not as it should be


def show_findings(findings: Iterable[Finding], *, as_json: bool) -> bool:
    """Each as soon as it is found, or all as one document. Whether there was no error."""
    found = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            state = terminal.styled(finding.state.ljust(WIDTH_OF_STATE), fg=COLOURS[finding.state])
            terminal.show(f"{state} {finding.what:<{WIDTH_OF_WHAT}} {terminal.printable(finding.text)}")
    if as_json:
        terminal.show_json([asdict(finding) for finding in found])
    return all(finding.state != "error" for finding in found)
