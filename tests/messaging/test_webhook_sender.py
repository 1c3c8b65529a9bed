"""Deliveries arrive where they may, and a receiver can neither redirect them, hold them, nor flood them."""

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from messaging.webhook_addresses import is_public
from messaging.webhook_sender import Sender, Sent, UnusableUrl
from tests.receivers import HOSTILE, SECONDS, hostile_receiver, receiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HERE = [ip_network("127.0.0.0/8")]
BODY = '{"type": "version.published"}'


def send(url: str, sender: Sender | None = None) -> Sent:
    own = sender or Sender(HERE, seconds=10)
    return asyncio.run(own.send(url, SECRET, "msg_1", datetime.now(UTC), BODY))


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Makes names resolve to these addresses: each call to the next list, and to the last for ever; lists the calls."""

    def install(*answers: list[str]) -> list[str]:
        asked: list[str] = []

        def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
            if host[0].isdigit():  # an address
                return real(host, port, *_, **__)
            asked.append(host)
            addresses = answers[min(len(asked), len(answers)) - 1]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return asked

    return install


# Arriving


def test_a_delivery_arrives_signed() -> None:
    """The body as it is stored, byte for byte."""
    with receiver() as own:
        sent = send(f"{own.url}/hook?for=me")
        received = own.next()

    assert (sent.status, sent.error) == (204, None)
    assert (received.path, received.body) == ("/hook?for=me", BODY.encode())
    assert received.is_signed_with(SECRET)
    assert received.headers["content-type"] == "application/json"
    assert received.headers["host"] == f"127.0.0.1:{own.port}"


@pytest.mark.parametrize("status", [400, 404, 410, 500, 503])
def test_any_answer_but_2xx_is_a_failure(status: int) -> None:
    """With what the receiver answered."""
    with receiver(status) as own:
        sent = send(own.url)

    assert (sent.status, sent.error) == (status, f"the receiver answered {status}")


@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_is_not_followed(status: int) -> None:
    """It could lead to an address that nobody has checked."""
    with receiver(status) as own:
        sent = send(own.url)
        first = own.next()

        assert own.received.empty()
    assert first.path == "/"
    assert sent.status == status
    assert "redirects are not followed" in (sent.error or "")


def test_a_receiver_that_is_down_is_a_failure() -> None:
    """No exception."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        sent = send(f"http://127.0.0.1:{unused.getsockname()[1]}")

    assert sent.status is None
    assert sent.error


def test_a_name_that_does_not_exist_is_a_failure() -> None:
    """`.invalid` never does."""
    sent = send("https://nobody.invalid/hook")

    assert sent.status is None
    assert "nobody.invalid" in (sent.error or "")


# Hostile receivers


@pytest.mark.parametrize("way", HOSTILE)
def test_a_hostile_receiver_ends_with_the_deadline_or_before(way: str) -> None:
    """Whatever it sends, and however slowly: an answer counts by its status, and its body is not read."""
    began = time.monotonic()
    with hostile_receiver(way) as own:
        sent = send(own.url, Sender(HERE, seconds=0.5))
        took = time.monotonic() - began
        closed = own.left.wait(SECONDS)

    assert closed
    assert took < 5
    assert (sent.error is None) == (way == "endless body")
    if way in ("silent", "slow head"):
        assert sent.error == "there was no answer within 0.5 seconds"


def test_a_handshake_that_never_ends_has_the_same_deadline() -> None:
    """Whoever accepts a connection and says nothing does not get far with TLS either."""
    with hostile_receiver("silent") as own:
        sent = send(own.url.replace("http:", "https:"), Sender(HERE, seconds=0.5))
        closed = own.left.wait(SECONDS)

    assert (sent.error, closed) == ("there was no answer within 0.5 seconds", True)


# Addresses


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
        *("169.254.169.254", "169.254.1.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
        *("::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "fe80::1", "fec0::1"),
        *("fc00::1", "fd00:ec2::254", "ff02::1", "2002:7f00:1::", "2002:a9fe:a9fe::", "64:ff9b::a00:1"),
        *("2001::1", "2001:db8::1", "100::1", "::127.0.0.1"),
    ],
)
def test_an_address_that_is_not_public_is_known(address: str) -> None:
    """This machine, private networks, metadata services, groups, and IPv4 within IPv6."""
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::"])
def test_a_public_address_is_known(address: str) -> None:
    """In either family, and as IPv4 within IPv6."""
    assert is_public(ip_address(address))


def test_a_private_address_is_not_connected_to() -> None:
    """Although somebody listens there."""
    with receiver() as own:
        sent = send(own.url.replace("http:", "https:"), Sender(seconds=5))

        assert own.received.empty()
    assert sent.status is None
    assert "127.0.0.1 is not a public address" in (sent.error or "")


@pytest.mark.parametrize("host", ["localhost", "0x7f.1", "2130706433", "127.1"])
def test_other_ways_to_write_this_machine_are_known_too(host: str) -> None:
    """What is checked is what they resolve to."""
    sent = send(f"https://{host}/hook", Sender(seconds=5))

    assert sent.status is None
    assert "is not a public address" in (sent.error or "")


def test_a_name_is_resolved_once(resolved: Callable[..., list[str]]) -> None:
    """DNS rebinding: an answer that passes the check, then another. The connection goes to the one that was checked."""
    asked = resolved(["127.0.0.1"], ["10.0.0.1"])
    with receiver() as own:
        sent = send(f"http://receiver.test:{own.port}/hook")
        received = own.next()

    assert (sent.error, asked) == (None, ["receiver.test"])
    assert received.headers["host"] == f"receiver.test:{own.port}"


def test_of_several_addresses_only_those_that_are_allowed_are_tried(resolved: Callable[..., list[str]]) -> None:
    """A private one beside it is passed over."""
    resolved(["10.255.255.1", "127.0.0.1"])
    with receiver() as own:
        sent = send(f"http://receiver.test:{own.port}/hook")

    assert sent.error is None


def test_without_tls_only_listed_networks_are_reached(resolved: Callable[..., list[str]]) -> None:
    """A public address over http is refused, also when other networks are listed."""
    resolved(["8.8.8.8"])

    sent = send("http://receiver.test/hook")

    assert sent.status is None
    assert "without TLS" in (sent.error or "")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the name `receiver.test`, with its key."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    subject = ["-subj", "/CN=receiver.test", "-addext", "subjectAltName=DNS:receiver.test"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    made = subprocess.run(["openssl", "req", *kind, *subject, "-keyout", "-"], capture_output=True, check=True)
    file.write_bytes(made.stdout)
    return file


@pytest.mark.parametrize(("name", "error"), [("receiver.test", None), ("other.test", "other.test")])
def test_the_certificate_must_be_that_of_the_name(
    resolved: Callable[..., list[str]], certificate: Path, name: str, error: str | None
) -> None:
    """The connection goes to an address, TLS still speaks of the name."""
    resolved(["127.0.0.1"])
    sender = Sender(HERE, seconds=10, ssl_context=ssl.create_default_context(cafile=str(certificate)))
    with receiver(tls=certificate) as own:
        sent = send(f"https://{name}:{own.port}/hook", sender)

    assert (sent.status == 204) == (error is None)
    assert sent.error is None or "certificate" in sent.error.lower()


# Registering


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.org/", "https://host/path"),
        ("example.org", "https://host/path"),
        ("https://", "https://host/path"),
        ("https://example.org:0/", "https://host/path"),
        ("https://example.org:99999/", "no address"),
        ("https://[::1", "no address"),
        ("https://me:secret@example.org/", "neither a user"),
        ("https://example.org/#part", "fragment"),
        ("https://exämple.org/", "ASCII"),
        ("https://example.org/a b", "no spaces"),
        ("https://example.org/\r\nHost: other", "ASCII"),
        ("https://example.org/" + "x" * 2000, "2000"),
        ("https://169.254.169.254/latest", "not a public address"),
        ("https://[::ffff:10.0.0.1]/", "not a public address"),
        ("http://example.org/", "use https"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: str, reason: str) -> None:
    """Before anything is sent to it, with the reason."""
    with pytest.raises(UnusableUrl, match=reason):
        Sender().require_usable(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/hook", "http://receiver.internal/", "https://example.org/?a=b"])
def test_an_address_that_can_be_used_is_not(url: str) -> None:
    """What a name resolves to is checked when it is connected to."""
    Sender(HERE).require_usable(url)
