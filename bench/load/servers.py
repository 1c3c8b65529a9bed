"""Servers as processes: start, wait until they listen, stop."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

SECONDS_TO_START = 120


@dataclass(frozen=True)
class Server:
    """A running server, and how to send it a request."""

    name: str
    port: int
    process: "subprocess.Popen[bytes]"
    field: str = "image"  # of the form
    ours: bool = False  # answers as protoquad does
    path: str = "/predict"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pause(self) -> None:
        """Stop its processes: some servers poll while they are idle and take cores from the one being measured."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            self.pause()

    def resident_megabytes(self) -> float:
        """Of all its processes."""
        leader = psutil.Process(self.process.pid)
        return float(sum(one.memory_info().rss for one in [leader, *leader.children(recursive=True)])) / 2**20


Running = contextlib.AbstractContextManager[Server]


@dataclass(frozen=True)
class Checkout:
    """A folder with a version of the sources: its modules are imported instead of the installed ones."""

    name: str
    folder: Path
    cache: Path  # of prepared backbones: two versions may prepare them differently


@contextlib.contextmanager
def protoquad(
    home: Path, backbone: str, *, worker: bool = False, broker_url: str = "", checkout: Checkout | None = None
) -> Iterator[Server]:
    """The service on this home, in which it also logs; without a checkout, the installed one."""
    home.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    environment = {
        "PROTOQUAD_HOME": str(home),
        "PROTOQUAD_DATABASE_URL": "",
        "PROTOQUAD_BROKER_URL": broker_url,
        "PROTOQUAD_BACKBONE": backbone,
        "PROTOQUAD_WORKER": str(worker).lower(),
        "PROTOQUAD_MAX_CLASSES": "1000000",  # the limit itself is not measured
    }
    if checkout:
        environment["PROTOQUAD_CACHE"] = str(checkout.cache)
    name, folder = (checkout.name, checkout.folder) if checkout else ("protoquad", None)
    command = ["-m", "protoquad", "serve", "--port", str(port)]
    with _process(name, port, command, home / "log", environment, folder) as process:
        yield Server(name, port, process, field="images", ours=True)


@contextlib.contextmanager
def peer(name: str, backbone: str, prototypes: Path) -> Iterator[Server]:
    """Another server; it logs beside its prototypes."""
    port = _free_port()
    command = ["-m", f"bench.peers.{name}_server", str(port), backbone, str(prototypes)]
    with _process(name, port, command, prototypes.with_name(f"{name}.log"), {}) as process:
        yield Server(name, port, process)


@contextlib.contextmanager
def _process(
    name: str, port: int, command: list[str], log: Path, environment: dict[str, str], folder: Path | None = None
) -> "Iterator[subprocess.Popen[bytes]]":
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a process group: its children are paused and stopped with it
        )
    try:
        _wait_until_listening(name, port, process, log)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(process.pid, signal.SIGCONT)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_listening(name: str, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    failure = f"did not listen within {SECONDS_TO_START} seconds"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            failure = f"ended with code {process.returncode}"
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{name} {failure}: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
