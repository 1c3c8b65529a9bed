"""The service as it is deployed, in small: replicas and workers as processes, on a PostgreSQL and a Redis of their own.

Whoever runs the service restarts what has ended; here that is `Part.start`. The stage itself breaks nothing.
"""

import contextlib
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from migrations import schema
from store.database import Database
from tests.postgresql_server import PostgresqlServer
from tests.processes import Running
from tests.receivers import Receiver, receiver
from tests.redis_server import RedisServer, free_port

SECONDS = 300  # for whatever should happen soon, on a busy machine; nothing waits so long unless something is wrong
SECONDS_TO_AGREE = 60  # for replicas to learn what another was told: a second, where nobody is busy
LEASE = 3.0
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "PROTOQUAD_LEASE_SECONDS": str(LEASE),
    "PROTOQUAD_SESSION_DELAY": "0.2",
    "PROTOQUAD_SESSION_PATIENCE": "1",
    "PROTOQUAD_KEEP_VERSIONS": "4",  # few, so that versions are pruned all the time
    "PROTOQUAD_WORKER": "false",
    "PROTOQUAD_CAPTURE": "all",
    "PROTOQUAD_WEBHOOK_NETWORKS": "127.0.0.1",
}
LAST_LINES = 12
CALLERS = "callers"  # the name of their key

Found = TypeVar("Found")


def until(what: str, look: Callable[[], Found | None], seconds: float = SECONDS) -> Found:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} seconds")
        threading.Event().wait(0.05)
    return found


class Part:
    """A `protoquad` process under one name, through all its deaths."""

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str], ready: str) -> None:
        self.name = name
        self.arguments = arguments
        self.environment = environment
        self.ready = ready  # what it says when it is
        self.paused = False
        self._lives: list[Running] = []

    def start(self) -> None:
        if self.dead:
            self._lives.append(Running(self.arguments, self.environment))

    @property
    def dead(self) -> bool:
        return not self._lives or self._lives[-1].process.poll() is not None

    @property
    def pid(self) -> int:
        return self._lives[-1].process.pid

    def await_ready(self) -> None:
        """Started again for as long as it ends by itself, as it does where a database is away."""
        deadline = time.monotonic() + SECONDS
        while not self._said_ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not become ready: {self.last_lines()}")
            self.start()

    def _said_ready(self) -> bool:
        if self.dead:
            return False
        running = self._lives[-1]
        if any(line.get("event") == self.ready for line in list(running.lines)):
            return True
        with contextlib.suppress(AssertionError, queue.Empty):
            running.wait_for(self.ready)
        return not self.dead

    def kill(self) -> None:
        if not self.dead:
            self._lives[-1].kill()
        self.paused = False

    def pause(self) -> None:
        if not self.dead:
            self._lives[-1].process.send_signal(signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        if self.paused and not self.dead:
            self._lives[-1].process.send_signal(signal.SIGCONT)
        self.paused = False

    def lines(self) -> Iterator[dict[str, Any]]:
        for life in self._lives:
            yield from list(life.lines)

    def last_lines(self) -> list[dict[str, Any]]:
        return list(self.lines())[-LAST_LINES:]

    def close(self) -> None:
        for life in self._lives:
            life.close()


class Replica(Part):
    """An API process; it comes back on the same port."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.port = free_port()
        super().__init__(name, ["serve", "--port", str(self.port)], environment, "listening")
        timeout = httpx.Timeout(SECONDS, connect=5)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=timeout)

    def close(self) -> None:
        self.client.close()
        super().close()


class Worker(Part):
    def __init__(self, name: str, environment: dict[str, str]) -> None:
        super().__init__(name, ["worker"], environment, "worker ready")


class Deployment:
    """Processes of the service and the database that they share."""

    replicas: list[Replica]
    workers: list[Worker]
    database: Database
    receiver: Receiver  # of webhooks

    def __init__(self) -> None:
        self._receiving = contextlib.ExitStack()
        self._folder = tempfile.TemporaryDirectory(prefix="protoquad-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)

    @property
    def parts(self) -> list[Part]:
        return [*self.replicas, *self.workers]

    def __enter__(self) -> Self:
        try:
            self.receiver = self._receiving.enter_context(receiver())
            self.set_up()
            self.heal()
            self._admit_callers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_up(self) -> None:
        """What has to be there before the processes are."""

    def _admit_callers(self) -> None:
        """With a key of their own: any other key that is made or revoked changes nothing for them."""
        answer = self.replicas[0].client.post("/keys", json={"name": CALLERS, "scopes": ["admin"]})
        key = answer.raise_for_status().json()["key"]
        for replica in self.replicas:
            replica.client.headers["Authorization"] = f"Bearer {key}"

    def kill_parts(self) -> None:
        for part in self.parts:
            part.kill()

    def start_parts(self) -> None:
        for part in self.parts:
            part.start()

    def heal(self) -> None:
        """Everything runs and has said so; whatever was injected is over."""
        for part in self.parts:
            part.resume()
        self.start_parts()
        for part in self.parts:
            part.await_ready()

    def close(self) -> None:
        for part in self.parts:
            part.close()
        self._receiving.close()
        self.database.close()
        self._folder.cleanup()


class Stage(Deployment):
    """Replicas and workers on PostgreSQL and Redis."""

    def __init__(self, *, replicas: int = 2, workers: int = 2, **settings: str) -> None:
        super().__init__()
        folder = self.folder
        folder.chmod(0o711)  # under root PostgreSQL runs as somebody else, and must reach its own
        (folder / "postgresql").mkdir()
        (folder / "redis").mkdir()
        # A commit that was acknowledged must survive an immediate stop; the machine itself does not crash.
        self.postgresql = PostgresqlServer(folder / "postgresql", synchronous_commit="on", max_connections="200")
        self.redis = RedisServer(folder / "redis")
        self.url = self.postgresql.url("postgres")
        environment = {
            **SETTINGS,
            "PROTOQUAD_DATABASE_URL": self.url,
            "PROTOQUAD_BROKER_URL": self.redis.url,
            "PROTOQUAD_HOME": str(folder / "home"),
            **settings,
        }
        self.replicas = [Replica(f"replica {number}", environment) for number in range(1, replicas + 1)]
        self.workers = [Worker(f"worker {number}", environment) for number in range(1, workers + 1)]
        self.database = Database(self.url)
        self.postgresql_runs = False

    def set_up(self) -> None:
        self.start_postgresql()
        self.redis.start()
        schema.upgrade(self.database)

    def start_postgresql(self) -> None:
        if not self.postgresql_runs:
            self.postgresql.start()
            self.postgresql_runs = True

    def stop_postgresql(self, mode: str) -> None:
        if self.postgresql_runs:
            self.postgresql.stop(mode)
            self.postgresql_runs = False

    def heal(self) -> None:
        self.start_postgresql()
        if self.redis.runs:
            self.redis.send(signal.SIGCONT)
        else:
            self.redis.start()
        super().heal()

    def close(self) -> None:
        for part in self.parts:
            part.close()
        if self.redis.runs:
            self.redis.kill()
        self.stop_postgresql("immediate")
        super().close()
