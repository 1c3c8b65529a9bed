"""Sends one signed delivery to a webhook, and says what came of it. Never raises because of the receiver.

A receiver may be slow, endless or hostile: a delivery has one deadline for everything, follows no redirect, reads at
most the head of an answer, and uses a connection of its own.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from ssl import SSLContext
from urllib.parse import urlsplit

import httpcore2

from messaging.webhook_addresses import AddressRefused, CheckedNetwork, Network
from messaging.webhook_signature import headers

LONGEST_URL = 2_000  # characters
LONGEST_ERROR = 300
ARRIVED = range(200, 300)
REDIRECTS = range(300, 400)


class UnusableUrl(ValueError):
    """The text cannot be the address of a webhook."""


@dataclass(frozen=True)
class Sent:
    """What came of an attempt. Without an error it has arrived."""

    status: int | None
    error: str | None
    milliseconds: float


class Sender:
    """May be used from several event loops: it keeps no connection."""

    def __init__(
        self, networks: Sequence[Network] = (), *, seconds: float = 15.0, ssl_context: SSLContext | None = None
    ) -> None:
        self._networks = networks
        self._seconds = seconds
        self._ssl_context = ssl_context

    def require_usable(self, url: str) -> None:
        """Raises UnusableUrl. What a name resolves to is checked when it is connected to, each time."""
        if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
            raise UnusableUrl(f"an address has up to {LONGEST_URL} ASCII characters and no spaces; write it encoded")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UnusableUrl(f"it is no address: {error}") from error
        if parts.scheme not in ("https", "http") or not host or port == 0:
            raise UnusableUrl("it does not have the form https://host/path")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise UnusableUrl("it must have neither a user, nor a password, nor a fragment")
        if parts.scheme == "http" and not self._networks:
            raise UnusableUrl("use https; http is for networks that PROTOQUAD_WEBHOOK_NETWORKS lists")
        try:
            literal = ip_address(host)
        except ValueError:
            return
        try:
            CheckedNetwork(self._networks, encrypted=parts.scheme == "https").require(literal)
        except AddressRefused as error:
            raise UnusableUrl(str(error)) from error

    async def send(self, url: str, secret: str, message_id: str, moment: datetime, body: str) -> Sent:
        content = body.encode()
        signed = headers(secret, message_id, moment, content)
        began = time.perf_counter()
        status: int | None = None
        try:
            async with asyncio.timeout(self._seconds):
                status = await self._post(url, signed, content)
            error = _judged(status)
        except TimeoutError:
            error = f"there was no answer within {self._seconds:g} seconds"
        except (AddressRefused, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as failure:
            error = _shown(failure)
        except Exception as failure:  # whatever a library raises about an address or an answer
            error = f"{type(failure).__name__}: {_shown(failure)}"
        return Sent(status, error, 1000 * (time.perf_counter() - began))

    async def _post(self, url: str, signed: dict[str, str], content: bytes) -> int:
        encrypted = url.startswith("https:")
        network = CheckedNetwork(self._networks, encrypted=encrypted)
        # In a thread: to read the certificates of all authorities takes long enough to hold up others.
        context = await asyncio.to_thread(self._tls) if encrypted else None
        about = {"host": urlsplit(url).netloc, "content-type": "application/json", "user-agent": "protoquad"}
        given = [*about.items(), ("connection", "close"), *signed.items()]
        try:
            async with (
                httpcore2.AsyncConnectionPool(context, network_backend=network, max_connections=1) as pool,
                pool.stream("POST", url, headers=given, content=content) as response,
            ):
                return int(response.status)
        finally:
            await network.aclose()

    def _tls(self) -> SSLContext:
        if self._ssl_context is None:
            self._ssl_context = httpcore2.default_ssl_context()
        return self._ssl_context


def _judged(status: int) -> str | None:
    if status in ARRIVED:
        return None
    if status in REDIRECTS:
        return f"the receiver answered {status}; redirects are not followed, register the address that it names"
    return f"the receiver answered {status}"


def _shown(error: Exception) -> str:
    line = str(error).partition("\n")[0] or type(error).__name__
    return "".join(one if one.isprintable() else "?" for one in line[:LONGEST_ERROR])
