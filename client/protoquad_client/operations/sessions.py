"""`/sessions` and `/events`: what trains, and what happens to a model."""

from dataclasses import replace

from protoquad_client.answers import Page, SessionState
from protoquad_client.requests import PAGE, Repeat, Request, given, nothing, parsed_as, parsed_as_page, quoted


def page(cursor: str | None = None) -> Request[Page[SessionState]]:
    return Request("GET", "/sessions", parsed_as_page(SessionState), params=given(cursor=cursor, limit=PAGE))


def get(session_id: int) -> Request[SessionState]:
    return Request("GET", f"/sessions/{quoted(session_id)}", parsed_as(SessionState))


def get_within(session_id: int, seconds: float) -> Request[SessionState]:
    """Asked once: whoever has little time decides what to do without an answer."""
    return replace(get(session_id), repeat=Repeat.NEVER, most_seconds=seconds)


def cancel(session_id: int) -> Request[SessionState]:
    path = f"/sessions/{quoted(session_id)}/cancel"
    return Request("POST", path, parsed_as(SessionState), repeat=Repeat.UNSAFE)


def events(session_id: int) -> Request[None]:
    """A stream."""
    return Request("GET", f"/sessions/{quoted(session_id)}/events", nothing)


def model_events() -> Request[None]:
    """A stream."""
    return Request("GET", "/events", nothing)
