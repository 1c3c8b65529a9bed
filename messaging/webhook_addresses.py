"""Which addresses webhooks may reach. A webhook must not be a way into the network that the service stands in.

Names are resolved once, and the connection is made to an address that was checked: a name that changes between the
check and the connection (DNS rebinding) gains nothing.
"""

import asyncio
import socket
import threading
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpcore2
from anyio import CancelScope
from httpcore2 import AsyncNetworkBackend, AsyncNetworkStream, ConnectError

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

ASSIGNED = IPv6Network("2000::/3")  # the only part of IPv6 that has public addresses
MOST_TRIED = 4  # addresses of one name


class AddressRefused(Exception):
    """The address is none that webhooks may reach."""


def is_public(address: Address) -> bool:
    """Whether it can only be on the internet: not this machine, this network, a metadata service or a group."""
    if isinstance(address, IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is not None:
            return is_public(within)
        if address not in ASSIGNED:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


class CheckedNetwork(AsyncNetworkBackend):
    """Connects to addresses that are allowed. `encrypted`: with TLS, without which only listed networks are reached."""

    def __init__(self, networks: Sequence[Network], *, encrypted: bool) -> None:
        self._networks = networks
        self._encrypted = encrypted
        self._backend = httpcore2.AnyIOBackend()
        self._opened: list[AsyncNetworkStream] = []

    async def aclose(self) -> None:
        """Close every connection. httpcore itself forgets one whose TLS handshake is cancelled, by a deadline."""
        with CancelScope(shield=True):
            for stream in self._opened:
                await stream.aclose()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[tuple[int, int, int]] | None = None,  # type: ignore[override]
    ) -> AsyncNetworkStream:
        failure: Exception = ConnectError(f"'{host}' has no address")
        for address in (await self._allowed(host, port))[:MOST_TRIED]:
            try:
                stream = await self._backend.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except ConnectError as error:
                failure = error
            else:
                self._opened.append(stream)
                return stream
        raise failure

    def require(self, address: Address) -> None:
        """Raises AddressRefused."""
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        listed = any(form in network for network in self._networks for form in (address, mapped) if form is not None)
        if not listed and not is_public(address):
            raise AddressRefused(f"{address} is not a public address; list its network in PROTOQUAD_WEBHOOK_NETWORKS")
        if not listed and not self._encrypted:
            raise AddressRefused(f"{address} is reached without TLS; use https, or list its network")

    async def _allowed(self, host: str, port: int) -> list[Address]:
        """Raises AddressRefused if the name has addresses, and none that is allowed."""
        allowed: list[Address] = []
        refusal: AddressRefused | None = None
        for address in await _resolved(host, port):
            try:
                self.require(address)
                allowed.append(address)
            except AddressRefused as error:
                refusal = error
        if refusal is not None and not allowed:
            raise refusal
        return allowed


async def _resolved(host: str, port: int) -> list[Address]:
    """In a thread of its own that is not waited for: a name server may keep it for longer than a delivery lasts."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[Address]] = loop.create_future()

    def resolve() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            addresses = list(dict.fromkeys(ip_address(str(row[4][0]).partition("%")[0]) for row in rows))
            _answer(loop, found, addresses, None)
        except (OSError, UnicodeError, ValueError) as error:
            _answer(loop, found, [], ConnectError(f"'{host}' cannot be resolved: {error}"))

    threading.Thread(target=resolve, name="webhook-name", daemon=True).start()
    return await found


def _answer(
    loop: asyncio.AbstractEventLoop,
    future: "asyncio.Future[list[Address]]",
    addresses: list[Address],
    error: Exception | None,
) -> None:
    def set_answer() -> None:
        if not future.done():
            future.set_exception(error) if error else future.set_result(addresses)

    if not loop.is_closed():
        loop.call_soon_threadsafe(set_answer)
