"""What can be seen of a service over HTTP: does it answer, is the key valid, do workers work, is the clock right?"""

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2

from protoquad_client.commands.findings import Finding, State
from protoquad_client.commands.terminal import counted
from protoquad_client.config import RELEASE, Config

SECONDS_TO_ANSWER = 5.0
SECONDS_OF_CLOCK = 5.0  # that the clocks of two machines may differ
START = "start it with `protoquad serve`, or name another with --url or PROTOQUAD_URL"
THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}


def service_findings(url: str, key: str | None, *, if_away: State = "error") -> Iterator[Finding]:
    """One after another; what depends on an earlier one that failed is left out."""
    try:
        config = Config.of(url, key, timeout=SECONDS_TO_ANSWER, retries=0, scale_down=False)
    except ValueError as error:
        yield Finding("error", "service", str(error))
        return
    with httpx2.Client(base_url=config.url, headers=config.headers(), timeout=SECONDS_TO_ANSWER) as http:
        yield from _findings(http, config.url, config.key, if_away)


def is_protoquad(url: str) -> bool:
    """Whether a service answers there, well or not."""
    try:
        return _is_ours(httpx2.get(f"{url}/livez", timeout=SECONDS_TO_ANSWER))
    except httpx2.TransportError:
        return False


def _is_ours(answer: httpx2.Response) -> bool:
    return _json(answer).get("status") == "alive" or bool(_slug(answer))


def _findings(http: httpx2.Client, url: str, key: str | None, if_away: State) -> Iterator[Finding]:
    asked = time.time()
    try:
        alive = http.get("/livez")
    except httpx2.TransportError as error:
        yield Finding(if_away, "service", f"{url} cannot be reached ({_reason(error)}): {START}")
        return
    moment = (asked + time.time()) / 2
    if not _is_ours(alive):
        yield Finding("error", "service", f"what answers at {url} is not protoquad: check the address and the port")
        return
    yield _state(alive, "service", f"{url} answers")
    if alive.status_code == 200:
        yield _state(_get(http, "/readyz"), "ready", "its models are loaded")
    yield from _encryption(url, key)
    yield from _clock(alive.headers.get("Date"), moment)
    who = _get(http, "/whoami")
    yield _key(who, key)
    if who.status_code == 200:
        yield from _about(_get(http, "/about"))


def _get(http: httpx2.Client, path: str) -> httpx2.Response:
    """An answer in any case: one that does not come is a problem like others."""
    try:
        return http.get(path)
    except httpx2.TransportError as error:
        return httpx2.Response(503, json={"type": "/problems/unreachable", "detail": _reason(error)})


def _state(answer: httpx2.Response, what: str, well: str) -> Finding:
    if answer.status_code == 200:
        return Finding("ok", what, well)
    return Finding("error", what, f"{_detail(answer)}: look at the log of the service")


def _encryption(url: str, key: str | None) -> Iterator[Finding]:
    parts = urlsplit(url)
    if key and parts.scheme == "http" and parts.hostname not in THIS_MACHINE:
        yield Finding("warning", "encryption", "the key is sent over http, so others may read it: use https")


def _clock(date: str | None, moment: float) -> Iterator[Finding]:
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return
    difference = abs(theirs + 0.5 - moment)  # the header has whole seconds
    if difference > SECONDS_OF_CLOCK:
        text = f"the clocks of this machine and of the service differ by {difference:,.0f} s: synchronise them (NTP)"
        yield Finding("warning", "clock", text)
    else:
        yield Finding("ok", "clock", "the service has the same time as this machine")


def _key(answer: httpx2.Response, key: str | None) -> Finding:
    if answer.status_code == 200:
        return _accepted(_json(answer), key)
    if _slug(answer) == "unauthorized":
        text = "the key is unknown or was revoked" if key else "the service wants a key and none was given"
        return Finding("error", "key", f"{text}: make one with `protoquad keys create` and set PROTOQUAD_KEY")
    return Finding("error", "key", _detail(answer))


def _accepted(body: dict[str, Any], key: str | None) -> Finding:
    if not body.get("keys_required"):
        ignored = "; the one that you gave is ignored" if key else ""
        return Finding("ok", "key", f"none is needed: the service is open to this machine only{ignored}")
    scopes = ", ".join(body.get("scopes", []))
    return Finding("ok", "key", f"'{body.get('name')}' ({body.get('key_id')}) is valid, for: {scopes}")


def _about(answer: httpx2.Response) -> Iterator[Finding]:
    if answer.status_code != 200:
        yield Finding("error", "database", f"{_detail(answer)}: check the database and the service's log")
        return
    body = _json(answer)
    yield Finding("ok", "database", "answers the service")
    yield _release(str(body.get("release")))
    yield _workers(body)


def _release(theirs: str) -> Finding:
    if RELEASE.split(".")[:2] == theirs.split(".")[:2]:
        return Finding("ok", "release", f"the service is {theirs}, the client {RELEASE}")
    text = f"the service is {theirs}, the client {RELEASE}: install the client of the service's release"
    return Finding("warning", "release", text)


def _workers(body: dict[str, Any]) -> Finding:
    alive, waiting = body["workers"]["alive"], body["queue"]["sessions"]
    queued = f"{counted(waiting, 'session')} {'waits' if waiting == 1 else 'wait'}"
    if alive:
        return Finding("ok", "workers", f"{counted(alive, 'worker')} alive; {queued}")
    if waiting:
        return Finding("error", "workers", f"{queued} and no worker is seen: start one with `protoquad worker`")
    text = "none is seen; one on another machine is seen only while it runs a session"
    return Finding("warning", "workers", f"{text}: if sessions stay queued, start one with `protoquad worker`")


def _json(answer: httpx2.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _slug(answer: httpx2.Response) -> str:
    """Of a problem; empty if it is none of protoquad's."""
    kind = str(_json(answer).get("type", ""))
    return kind.removeprefix("/problems/") if kind.startswith("/problems/") else ""


def _detail(answer: httpx2.Response) -> str:
    return str(_json(answer).get("detail") or f"it answers with status {answer.status_code}")


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return f"no answer within {SECONDS_TO_ANSWER:.0f} s"
    return str(error) or type(error).__name__
