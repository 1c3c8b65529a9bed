"""Who may ask what: API keys and their scopes, held in memory so that no request waits for the database.

With no key made the service is open, to this machine alone: the connection must come from a loopback address. A page
from elsewhere that a browser here has loaded is kept out by its Host (DNS rebinding), its Origin or its Sec-Fetch-Site
(a request across sites); what a proxy forwards, by the headers that proxies add. The first key closes it for good: with
all keys revoked nobody gets in until another is made.

Asks for no key: /livez and /readyz, which proxies and orchestrators check and which say one word; /docs, /openapi.json
and /docs-assets, which are the same for every installation.
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

from service.errors import RETRY_SECONDS, Problem
from service.request_log import note
from store import api_keys
from store.api_keys import SCOPES, KnownKey
from store.database import Database

Scope = Literal["predict", "teach", "admin"]

LONGEST_AUTHORIZATION = 200  # characters; a key has 76 of them
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}
# What proxies, tunnels and content delivery networks add to say for whom they ask.
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
    """The keys that are valid now, as far as the database could be asked."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failing = False
        self.loaded = False
        self.open = False  # until the database says that no key was ever made
        self.keys: Mapping[str, KnownKey] = MappingProxyType({})

    def refresh(self) -> None:
        """Ask the database; while it does not answer, the last known keys stay valid."""
        try:
            with self._database.read() as db:
                self.keys = MappingProxyType(api_keys.valid(db))
                self.open = not self.keys and not api_keys.everything(db)
        except SQLAlchemyError as error:
            if not self._failing:
                _log.warning(
                    "keys_not_refreshed", error=str(getattr(error, "orig", None) or error), known=len(self.keys)
                )
            self._failing = True
        else:
            self._failing = False
            self.loaded = True

    def find(self, key: str) -> KnownKey | None:
        known = self.keys.get(api_keys.key_id(key) or "")
        return known if known is not None and known.matches(key) else None


class Requires(HTTPBearer):
    """A dependency that lets a request pass whose key has this scope, or a larger one.

    A bearer scheme to FastAPI, so that /docs asks for a key; it reads the header in its own way.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(description="A key made with `protoquad keys create`.", scheme_name="HTTPBearer")
        self.scope: Scope = scope

    async def __call__(self, request: Request) -> None:  # type: ignore[override]  # what it would return, nobody asks for
        self._check(request)

    def still_admits(self, request: Request) -> bool:
        """Whether a request that passed would pass again: what lasts asks this from time to time."""
        try:
            self._check(request)
        except Problem:
            return False
        return True

    def _check(self, request: Request) -> None:
        ring: KeyRing = request.app.state.keyring
        if not ring.loaded:  # not known is not the same as none made
            raise _keys_unknown()
        if ring.open:
            _require_own_machine(request)
            return
        known = _known(request, ring)
        note(key=known.id)
        _require_scope(known, self.scope)


requires = cache(Requires)  # one for each scope


def _known(request: Request, ring: KeyRing) -> KnownKey:
    headers = request.headers.getlist("authorization")
    if not headers:
        raise _unauthorised("the request carries no API key; send the header 'Authorization: Bearer <key>'")
    match = _BEARER.fullmatch(headers[0]) if len(headers[0]) <= LONGEST_AUTHORIZATION else None
    if match is None or len(headers) > 1:
        raise _unauthorised("the Authorization header cannot be read; it must be 'Bearer <key>'")
    known = ring.find(match[1])
    if known is None:
        raise _unauthorised("the API key is unknown or was revoked; `protoquad keys create` makes a new one", sent=True)
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
            "The key's scope is too small",
            f"this needs a key with the scope '{scope}'; the key {known.id} has '{' '.join(sorted(known.scopes))}'; "
            f"`protoquad keys create --scope {scope}` makes one",
            slug="insufficient-scope",
            headers={"WWW-Authenticate": f'Bearer realm="protoquad", error="insufficient_scope", scope="{scope}"'},
        )


def _keys_unknown() -> Problem:
    return Problem(
        503,
        "The API keys are not known yet",
        "the service has started and the database has not told it which API keys are valid; try again shortly",
        slug="database-unavailable",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


# Open access, from this machine alone


def _require_own_machine(request: Request) -> None:
    said: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"sec-fetch-site": []}
    forwarded_by = None
    for name, value in request.scope["headers"]:
        if name in said:
            said[name].append(value.decode("latin-1"))
        elif name in _FORWARDING or name.startswith(_FORWARDING_PREFIXES):
            forwarded_by = name[:40].decode("latin-1")
    host = _address(said[b"host"][0]) if len(said[b"host"]) == 1 else None
    if host is None or not _is_loopback(host[0]):
        raise _closed("it answers only to localhost, 127.0.0.1 or [::1] as its host name")
    if request.client is None or not _is_loopback(request.client.host):
        raise _closed("it answers only to connections from this machine")
    if forwarded_by is not None:
        raise _closed(f"it takes no requests that a proxy forwards, and this one carries {forwarded_by}")
    if not all(_same_place(origin, host) for origin in said[b"origin"]):
        raise _closed("it takes no requests from web pages of another origin")
    # Sent by browsers with every request to this machine, also where they send no Origin; by other programs not at all.
    if not {"same-origin", "none"}.issuperset(said[b"sec-fetch-site"]):
        raise _closed("it takes no requests from web pages of another origin (Sec-Fetch-Site)")


def _closed(why: str) -> Problem:
    detail = (
        f"this service has no API key, so {why}; "
        "make a key with `protoquad keys create` and send it as 'Authorization: Bearer <key>'"
    )
    return Problem(403, "Open to this machine alone", detail, slug="local-only")


def _address(text: str) -> tuple[str, int | None] | None:
    """Host name and port out of a Host header."""
    match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^\[\]:@/?#\s]+)(?::([0-9]{1,5}))?", text.lower())
    return None if match is None else (match[1], int(match[2]) if match[2] else None)


def _is_loopback(host: str) -> bool:
    if host in {"127.0.0.1", "localhost"}:  # by far the most frequent
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    # How a socket for both families writes 127.0.0.1: ::ffff:127.0.0.1.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _same_place(origin: str, host: tuple[str, int | None]) -> bool:
    scheme, _, rest = origin.partition("://")
    place = _address(rest)
    default = _DEFAULT_PORTS.get(scheme.lower())
    return (
        place is not None and default is not None and (place[0], place[1] or default) == (host[0], host[1] or default)
    )
