"""How commands speak of a session."""

from collections.abc import Mapping
from typing import Any

from protoquad_client import Session


def session_text(session: Session) -> str:
    """How it ended."""
    if not session.over:
        return f"session {session.id} is still {session.status}; it goes on, and `watch` shows it"
    if session.status != "succeeded":
        return f"session {session.id} {session.status}: {session.error or session.reason or 'no reason is known'}"
    because = f": {session.reason}" if session.reason else ""
    return f"session {session.id} made version {session.version}, which was {session.verdict}{because}"


def session_json(session: Session) -> dict[str, Any]:
    names = ("id", "status", "verdict", "reason", "error", "version")
    return {name: getattr(session, name) for name in names}


def progress_text(progress: Mapping[str, Any]) -> str:
    """Stage, how much is done, and the losses."""
    parts = [str(progress.get("stage") or "running")]
    fraction = progress.get("fraction")
    if isinstance(fraction, int | float):
        parts.append(f"{100 * fraction:.0f} %")
    if progress.get("epoch") is not None and progress.get("epochs"):
        parts.append(f"epoch {progress['epoch']}/{progress['epochs']}")
    losses = progress.get("losses")
    if isinstance(losses, Mapping):
        parts += [f"{name} {value:.3f}" for name, value in losses.items() if isinstance(value, int | float)]
    return "  ".join(parts)
