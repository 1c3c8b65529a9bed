"""`pq doctor`: what is wrong with a service, seen from outside."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from protoquad_client.commands.findings import Finding
from protoquad_client.commands.service_findings import service_findings

from tests.client.answering import answering
from tests.client.command_line import run_pq
from tests.service.conftest import Service

ABOUT = {"release": "0.1.0", "workers": {"alive": 1, "last_seen": None}, "queue": {"sessions": 0, "images": 0}}
WELL = {
    "/livez": (200, {"status": "alive"}),
    "/readyz": (200, {"status": "ready"}),
    "/whoami": (200, {"key_id": None, "name": None, "scopes": ["admin"], "keys_required": False}),
    "/about": (200, ABOUT),
}


def states(findings: Iterator[Finding]) -> dict[str, str]:
    return {one.what: one.state for one in findings}


def problem(slug: str, detail: str) -> dict[str, str]:
    return {"type": f"/problems/{slug}", "title": "", "detail": detail}


def test_a_service_that_is_well_has_no_errors(service: Service) -> None:
    """One line for each finding."""
    done = run_pq("doctor", "--url", service.url)

    lines = {line[9:24].strip(): line[:8].strip() for line in done.stdout.splitlines()}
    assert done.exit_code == 0, done.output
    assert lines.pop("workers") in ("ok", "warning")  # one may have run for another test
    assert lines == dict.fromkeys(["service", "ready", "clock", "key", "database", "release"], "ok")


@pytest.mark.parametrize(("waiting", "state", "code"), [(0, "warning", 0), (3, "error", 1)])
def test_a_missing_worker_is_an_error_only_if_sessions_wait(waiting: int, state: str, code: int) -> None:
    """With the command that starts one; a worker elsewhere is seen only while it runs a session."""
    idle = {**ABOUT, "workers": {"alive": 0, "last_seen": None}, "queue": {"sessions": waiting, "images": 0}}
    with answering({**WELL, "/about": (200, idle)}) as service:
        done = run_pq("doctor", "--url", service.url, "--json")

    (workers,) = (one for one in json.loads(done.stdout) if one["what"] == "workers")
    assert done.exit_code == code
    assert workers["state"] == state
    assert "`protoquad worker`" in workers["text"]


def test_a_service_that_is_away_is_an_error() -> None:
    """And nothing else is asked."""
    done = run_pq("doctor", "--url", "http://127.0.0.1:1")

    assert done.exit_code == 1
    assert done.stdout.startswith("error    service         http://127.0.0.1:1 cannot be reached")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://127.0.0.1", "http://", "http://x:port", "http://[::1"])
def test_an_address_that_is_none_is_an_error(url: str) -> None:
    """With what one looks like."""
    (only,) = service_findings(url, None)

    assert only.state == "error"
    assert "one is http://127.0.0.1:8000" in only.text


def test_a_key_that_cannot_be_one_is_an_error() -> None:
    """And is not shown."""
    (only,) = service_findings("http://127.0.0.1:1", "schlüssel")

    assert (only.state, only.text) == ("error", "the key has characters that no key has; copy it again")


@pytest.mark.parametrize("answers", [{}, {"/livez": (200, {"status": "UP"})}, {"/livez": (200, [1])}])
def test_another_program_at_the_address_is_an_error(answers: dict[str, Any]) -> None:
    """A port may have been taken by something else."""
    with answering(answers) as service:
        (only,) = service_findings(service.url, None)

    assert (only.state, "is not protoquad" in only.text) == ("error", True)


def test_clocks_that_differ_are_a_warning() -> None:
    """By as much as they do."""
    with answering(WELL, seconds=90) as service:
        (clock,) = (one for one in service_findings(service.url, None) if one.what == "clock")

    assert clock.state == "warning"
    assert "differ by 90 s" in clock.text


def test_a_service_of_another_release_is_a_warning() -> None:
    """The client of that release knows its answers."""
    newer = {**WELL, "/about": (200, {**ABOUT, "release": "7.2.0"})}
    with answering(newer) as service:
        found = states(service_findings(service.url, None))

    assert found["release"] == "warning"
    assert found["workers"] == "ok"


def test_a_database_that_is_away_is_an_error() -> None:
    """What the service says about it is repeated."""
    away = {**WELL, "/about": (503, problem("database-unavailable", "the database cannot be reached"))}
    with answering(away) as service:
        (database,) = (one for one in service_findings(service.url, None) if one.what == "database")

    assert database.state == "error"
    assert "the database cannot be reached" in database.text


def test_a_service_that_is_not_ready_is_an_error() -> None:
    """It may be loading, or stopping."""
    with answering({**WELL, "/readyz": (503, problem("not-ready", "no model is loaded yet"))}) as service:
        found = states(service_findings(service.url, None))

    assert found["service"] == "ok"
    assert found["ready"] == "error"


def test_a_key_is_checked_and_its_scopes_are_said() -> None:
    """A missing or wrong one is an error with what to do."""
    refusing = {**WELL, "/whoami": (401, problem("unauthorized", "a key is needed"))}
    valid = {"key_id": "1a2b", "name": "camera", "scopes": ["predict", "teach"], "keys_required": True}
    with answering(refusing) as service:
        (without,) = (one for one in service_findings(service.url, None) if one.what == "key")
        (revoked,) = (one for one in service_findings(service.url, "pq_x") if one.what == "key")
    with answering({**WELL, "/whoami": (200, valid)}) as service:
        (accepted,) = (one for one in service_findings(service.url, "pq_y") if one.what == "key")

    assert (without.state, "none was given" in without.text) == ("error", True)
    assert (revoked.state, "unknown or was revoked" in revoked.text) == ("error", True)
    assert (accepted.state, accepted.text) == ("ok", "'camera' (1a2b) is valid, for: predict, teach")
