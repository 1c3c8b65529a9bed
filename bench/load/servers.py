"""Servers as processes: started, waited for, stopped."""

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

SECONDS_TO_START = 120


@dataclass(frozen=True)
class Server:
    """Where to ask, and how."""

    name: str
    port: int
    process: "subprocess.Popen[bytes]"
    path: str = "/predict"
    field: str = "image"
    ours: bool = False

    def pause(self) -> None:
        """Its processes stand still: some servers poll while they have nothing to do, and take cores from another."""
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
        return sum(_resident_kilobytes(pid) for pid in _group(self.process.pid)) / 1024


def _group(leader: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            if os.getpgid(int(folder.name)) == leader:
                found.append(int(folder.name))
    return found


def _resident_kilobytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
    return 0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextlib.contextmanager
def protoquad(home: Path, backbone: str, log: Path, *, worker: bool = False) -> Iterator[Server]:
    with protoquad_at(None, home, backbone, log, worker=worker) as server:
        yield server


@contextlib.contextmanager
def protoquad_at(
    checkout: Path | None, home: Path, backbone: str, log: Path, *, worker: bool = False
) -> Iterator[Server]:
    """The service of this checkout; without one, of what is installed."""
    port = free_port()
    environment = {
        "PROTOQUAD_HOME": str(home),
        "PROTOQUAD_DATABASE_URL": "",
        "PROTOQUAD_BROKER_URL": "",
        "PROTOQUAD_BACKBONE": backbone,
        "PROTOQUAD_WORKER": str(worker).lower(),
        "PROTOQUAD_MAX_CLASSES": "1000000",  # what many cost is measured, not that they are refused
    }
    command = ["-m", "protoquad", "serve", "--port", str(port)]
    with _running("protoquad", port, command, environment, log, checkout) as process:
        yield Server("protoquad", port, process, field="images", ours=True)


@contextlib.contextmanager
def peer(name: str, backbone: str, prototypes: Path, log: Path) -> Iterator[Server]:
    port = free_port()
    command = ["-m", f"bench.peers.{name}_server", str(port), backbone, str(prototypes)]
    with _running(name, port, command, {}, log) as process:
        yield Server(name, port, process)


@contextlib.contextmanager
def _running(
    name: str, port: int, command: list[str], environment: dict[str, str], log: Path, folder: Path | None = None
) -> "Iterator[subprocess.Popen[bytes]]":
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a group: its own processes are paused and ended with it
        )
        try:
            _wait(name, port, process, log)
            yield process
        finally:
            os.killpg(process.pid, signal.SIGCONT)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(name: str, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with code {process.returncode}: {_last_words(log)}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{name} did not listen within {SECONDS_TO_START} seconds: {_last_words(log)}")


def _last_words(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]
