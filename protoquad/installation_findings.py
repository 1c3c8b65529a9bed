"""What `protoquad doctor` checks of the installation: packages, Redis, the port, workers."""

import platform
import re
import socket
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from protoquad_client.commands.findings import Finding
from protoquad_client.commands.service_findings import is_protoquad

import protoquad
from store.heartbeats import heartbeats
from store.settings import Settings

CONSTRAINTS = Path(protoquad.__file__).parents[1] / "constraints.txt"  # of a checkout; a wheel has none
SHOWN = 5
SECONDS_TO_CONNECT = 1.0
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def package_findings() -> Iterator[Finding]:
    yield Finding(
        "ok", "python", f"{platform.python_version()}, protoquad {_installed('protoquad') or 'not installed'}"
    )
    needed = [name for text in requires_of("protoquad") if (name := _name_of(text))]
    missing = sorted(name for name in needed if _installed(name) is None)
    if missing:
        text = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: run `make install`"
        yield Finding("error", "packages", text)
        return
    other = [f"{name} is {found}, not {pin}" for name, pin in pins().items() if (found := _differs(name, pin))]
    if other:
        more = f" and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
        text = f"other versions than those tested ({'; '.join(other[:SHOWN])}{more}): run `make install`"
        yield Finding("warning", "packages", text)
    else:
        tested = ", in versions that were tested" if pins() else ""
        yield Finding("ok", "packages", f"all {len(needed)} that it needs are installed{tested}")


def address_of(chosen: Settings) -> str:
    """Where a service with these settings answers."""
    host = ANY_ADDRESS.get(chosen.host, chosen.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{chosen.port}"


def port_finding(chosen: Settings) -> Finding:
    where = f"port {chosen.port} of {chosen.host}"
    try:
        with socket.create_connection((ANY_ADDRESS.get(chosen.host, chosen.host), chosen.port), SECONDS_TO_CONNECT):
            pass
    except OSError:
        return Finding("ok", "port", f"nothing listens on {where}: `protoquad serve` can use it")
    if is_protoquad(address_of(chosen)):
        return Finding("ok", "port", f"protoquad listens on {where}")
    return Finding("error", "port", f"another program listens on {where}: stop it, or set PROTOQUAD_PORT to another")


def redis_finding(url: str) -> Finding:
    from messaging.broker import connected

    if not url:
        return Finding("ok", "redis", "is not set: processes poll the database")
    try:
        with connected(url) as redis:
            redis.ping()
    except Exception as error:  # of its client, of the network and of its URL
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        text = (
            f"does not answer ({reason}): start it, or correct PROTOQUAD_BROKER_URL; until then the database is polled"
        )
        return Finding("warning", "redis", text)
    return Finding("ok", "redis", "answers")


def worker_findings(chosen: Settings) -> Iterator[Finding]:
    """Of workers on this home; those elsewhere are seen by the service."""
    for name, age in heartbeats(chosen.home).items():
        text = f"worker {name} made its last step {age:.0f} s ago"
        if age > chosen.stall_seconds:
            yield Finding("warning", "worker", f"{text}: if its process is gone, start another with `protoquad worker`")
        else:
            yield Finding("ok", "worker", text)


def requires_of(distribution: str) -> list[str]:
    """Its requirements without those of extras."""
    try:
        return [text for text in requires(distribution) or [] if "extra ==" not in text]
    except PackageNotFoundError:
        return []


def pins() -> dict[str, str]:
    """The tested version of each package, where that is known."""
    if not CONSTRAINTS.exists():
        return {}
    return dict(re.findall(r"^([\w.-]+)==(\S+)", CONSTRAINTS.read_text(), re.MULTILINE))


def _differs(name: str, pin: str) -> str | None:
    found = _installed(name)
    return found if found is not None and found.partition("+")[0] != pin.partition("+")[0] else None


def _name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    return found[0] if found else ""


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
