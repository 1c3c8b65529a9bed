"""Who may do what: API keys and their scopes, kept in memory so that no request waits for the database.

As long as no key was ever made, the service is open, but only to this machine: the connection must come from a loopback
address. A web page from elsewhere, loaded in a browser on this machine, is recognised by its Host (DNS rebinding),
Origin or Sec-Fetch-Site (a request across sites), and a proxy by the headers that it adds. The first key ends open
access for good: once all keys are revoked, nobody has access until a new key is made.

These need no key: /livez, /readyz and /v2/health, which proxies and orchestrators check; the console (/, /console and
/samples), /docs, /openapi.json and /docs-assets, which are the same in every installation.
"""

import ipaddress
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal

import structlog
from fastapi import Request
from fastapi.security import HTTPBearer
from sqlalchemy.exc import SQLAlchemyError

from service.problems import RETRY_SECONDS, Problem
from service.request_middleware import note
from store import api_keys
from store.api_keys import SCOPES, KnownKey
from store.database import Database

Scope = Literal["predict", "teach", "admin"]

LONGEST_AUTHORIZATION = 200  # characters; a key has 76 of them
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Headers with which proxies, tunnels and content delivery networks name the client.
_FORWARDING = frozenset(
    {
        b"forwarded",
        b"via",
        b"cdn-loop",
        b"cf-connecting-ip",
        b"cf-ray",
        b"client-ip",
        b"fastly-client-ip",
        b"fly-client-ip",
        b"true-client-ip",
        b"x-azure-clientip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-real-ip",
    }
)
_FORWARDING_PREFIXES = (b"x-forwarded", b"x-original-", b"x-envoy-", b"tailscale-")
_log = structlog.get_logger("protoquad.auth")


class KeyRing:
    """The valid keys, as the database last listed them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failing = False
        self.loaded = False
        self.open = False  # until the database shows that no key was ever made
        self.keys: Mapping[str, KnownKey] = MappingProxyType({})

    def refresh(self) -> None:
        """Read the keys from the database; while it does not answer, the last known keys stay valid."""
        try:
            with self._database.read() as db:
                self.keys = MappingProxyType(api_keys.valid(db))
                self.open = not self.keys and not api_keys.everything(db)
        except SQLAlchemyError as error:
            if not self._failing:
                _log.warning(
                    "keys not refreshed", error=str(getattr(error, "orig", None) or error), known=len(self.keys)
                )
            self._failing = True
        else:
            self._failing = False
            self.loaded = True

    def find(self, key: str) -> KnownKey | None:
        known = self.keys.get(api_keys.key_id(key) or "")
        return known if known is not None and known.matches(key) else None


class Requires(HTTPBearer):
    """A dependency that admits a request if its key has this scope, or a larger one.

    For FastAPI it is a bearer scheme, so that /docs asks for a key; it reads the header itself.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(description="A key made with `protoquad keys create`.", scheme_name="HTTPBearer")
        self.scope: Scope = scope

    async def __call__(self, request: Request) -> None:  # type: ignore[override]  # nobody uses the return value
        self._check(request)

    def still_admits(self, request: Request) -> bool:
        """Whether a request that was admitted would be admitted again; event streams ask this from time to time."""
        try:
            self._check(request)
        except Problem:
            return False
        return True

    def _check(self, request: Request) -> None:
        ring: KeyRing = request.app.state.keyring
        if not ring.loaded:  # that differs from a database without keys
            raise _keys_unknown()
        if ring.open:
            _require_own_machine(request)
            return
        known = _known(request, ring)
        note(key=known.id)
        _require_scope(known, self.scope)


requires = cache(Requires)  # one for each scope


def key_of(request: Request) -> KnownKey | None:
    """The key of a request that was admitted; None if the service is open."""
    ring: KeyRing = request.app.state.keyring
    return None if ring.open else _known(request, ring)


def scopes_of(known: KnownKey | None) -> list[Scope]:
    """All scopes that a key has: each includes those before it. An open service asks for none."""
    largest = max((SCOPES.index(scope) for scope in known.scopes), default=-1) if known else len(SCOPES) - 1
    every: list[Scope] = ["predict", "teach", "admin"]
    return every[: largest + 1]


def _known(request: Request, ring: KeyRing) -> KnownKey:
    headers = request.headers.getlist("authorization")
    if not headers:
        raise _unauthorised("the request has no API key; send the header 'Authorization: Bearer <key>'")
    match = _BEARER.fullmatch(headers[0]) if len(headers[0]) <= LONGEST_AUTHORIZATION else None
    if match is None or len(headers) > 1:
        raise _unauthorised("the Authorization header cannot be read; it must be 'Bearer <key>'")
    known = ring.find(match[1])
    if known is None:
        raise _unauthorised("the API key is unknown or revoked; make a new one with `protoquad keys create`", sent=True)
    return known


def _unauthorised(detail: str, *, sent: bool = False) -> Problem:
    challenge = 'Bearer realm="protoquad"' + (', error="invalid_token"' if sent else "")
    headers = {"WWW-Authenticate": challenge}
    return Problem(401, "A valid API key is needed", detail, slug="unauthorized", headers=headers)


def _require_scope(known: KnownKey, scope: Scope) -> None:
    enough = SCOPES[SCOPES.index(scope) :]  # each scope includes those before it
    if known.scopes.isdisjoint(enough):
        raise Problem(
            403,
            "The key lacks the scope",
            f"this needs a key with the scope '{scope}'; the key {known.id} has '{' '.join(sorted(known.scopes))}'; "
            f"make one with `protoquad keys create --scope {scope}`",
            slug="insufficient-scope",
            headers={"WWW-Authenticate": f'Bearer realm="protoquad", error="insufficient_scope", scope="{scope}"'},
        )


def _keys_unknown() -> Problem:
    return Problem(
        503,
        "The API keys are not known yet",
        "the service has started but has not yet read the API keys from the database; try again shortly",
        slug="database-unavailable",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


# Open access from this machine


def _require_own_machine(request: Request) -> None:
    sent: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"sec-fetch-site": []}
    forwarded_by = None
    for name, value in request.scope["headers"]:
        if name in sent:
            sent[name].append(value.decode("latin-1"))
        elif name in _FORWARDING or name.startswith(_FORWARDING_PREFIXES):
            forwarded_by = name[:40].decode("latin-1")
    host = _address(sent[b"host"][0]) if len(sent[b"host"]) == 1 else None
    if host is None or not is_loopback(host[0]):
        raise _local_only("it answers only to the host names localhost, 127.0.0.1 and [::1]")
    if request.client is None or not is_loopback(request.client.host):
        raise _local_only("it answers only to connections from this machine")
    if forwarded_by is not None:
        raise _local_only(f"it accepts no requests from a proxy, and this one has the header {forwarded_by}")
    if not all(_same_place(origin, host) for origin in sent[b"origin"]):
        raise _local_only("it accepts no requests from web pages of another origin")
    # Browsers send it with every request to this machine, even without an Origin; other programs do not send it.
    if not {"same-origin", "none"}.issuperset(sent[b"sec-fetch-site"]):
        raise _local_only("it accepts no requests from web pages of another origin (Sec-Fetch-Site)")


def _local_only(why: str) -> Problem:
    detail = (
        f"this service has no API key, so {why}; "
        "make a key with `protoquad keys create` and send it as 'Authorization: Bearer <key>'"
    )
    return Problem(403, "Open to this machine only", detail, slug="local-only")


def _address(text: str) -> tuple[str, int | None] | None:
    """Host name and port of a Host header."""
    match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^\[\]:@/?#\s]+)(?::([0-9]{1,5}))?", text.lower())
    return None if match is None else (match[1], int(match[2]) if match[2] else None)


def is_loopback(host: str) -> bool:
    """Whether a host name or address, also in brackets, is reachable from this machine only."""
    if host in {"127.0.0.1", "localhost"}:  # by far the most frequent
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    # A socket for both families writes 127.0.0.1 as ::ffff:127.0.0.1.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _same_place(origin: str, host: tuple[str, int | None]) -> bool:
    scheme, _, rest = origin.partition("://")
    place = _address(rest)
    default = _DEFAULT_PORTS.get(scheme.lower())
    return (
        place is not None and default is not None and (place[0], place[1] or default) == (host[0], host[1] or default)
    )
