"""The client beside a real service, and each test on both of its forms: `Client`, and `AsyncClient` made blocking."""

import asyncio
import inspect
import shutil
import threading
from collections.abc import AsyncIterable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import structlog
from protoquad_client import AsyncClient, AsyncPages, AsyncSession, Client, Taught, retrying
from protoquad_client.async_resources import AsyncResource

from store.database import Database
from tests.client.command_line import CommandLine
from tests.client.misbehaving import Misbehaving
from tests.service.conftest import COLOURS, Service, _draw, running_service

SECONDS = 60.0  # bound of every wait: reached only by a test that fails
Connect = Callable[..., Any]


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        async def awaited() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(SECONDS)

    def iterate(self, items: AsyncIterable[Any]) -> Iterator[Any]:
        iterator = items.__aiter__()
        try:
            while True:
                try:
                    item = self.run(iterator.__anext__())
                except StopAsyncIteration:
                    return
                yield Blocking.of(item, self)
        finally:
            if inspect.isasyncgen(iterator):
                self.run(iterator.aclose())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


class Blocking:
    """An asynchronous client, or a part of it, that is used as if it were not."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    @classmethod
    def of(cls, value: Any, loop: Loop) -> Any:
        if inspect.isawaitable(value):
            return cls.of(loop.run(value), loop)
        if isinstance(value, Taught):
            return Taught(value.class_, cls(value.session, loop), value.version, value.outliers)
        if isinstance(value, (AsyncClient, AsyncResource, AsyncSession, AsyncPages)):
            return cls(value, loop)
        if inspect.isasyncgen(value):
            return loop.iterate(value)
        if inspect.ismethod(value):
            return lambda *given, **named: cls.of(value(*given, **named), loop)
        return value

    def __getattr__(self, name: str) -> Any:
        return Blocking.of(getattr(self._inner, name), self._loop)

    def __iter__(self) -> Iterator[Any]:
        return self._loop.iterate(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)


@pytest.fixture(params=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of one of the two forms, and closes them after the test."""
    loop, made = Loop(), list[Any]()

    def connected(url: str, **options: Any) -> Any:
        kind: Any = Client if request.param == "Client" else AsyncClient
        made.append(Blocking.of(kind(url, **options), loop))
        return made[-1]

    yield connected
    for client in made:
        client.close()
    loop.close()


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests of the client; what they must not share is a model."""
    home = tmp_path_factory.mktemp("client-service")
    shutil.copyfile(request.getfixturevalue("_migrated_file"), home / "protoquad.db")
    database = Database(f"sqlite:///{home / 'protoquad.db'}")
    with running_service(database, home, capture="all", max_images=20) as running:
        yield running
    database.close()


_numbers = count(1)


@pytest.fixture
def client(connect: Connect, service: Service) -> Iterator[Any]:
    """About a model of this test's own."""
    whole = connect(service.url)
    name = f"client-{next(_numbers)}"
    whole.models.create(name)
    yield whole.model(name)
    whole.models.delete(name)


@pytest.fixture(scope="session")
def draw() -> Callable[..., bytes]:
    return _draw


@pytest.fixture
def teach(client: Any) -> Callable[..., list[Any]]:
    """Teaches these colours, with three images each."""

    def taught(*looks: str) -> list[Any]:
        assert set(looks) <= set(COLOURS)
        return [client.classes.teach(look, [_draw(look, number) for number in range(3)]) for look in looks]

    return taught


@pytest.fixture
def misbehaving() -> Iterator[Misbehaving]:
    with Misbehaving() as server:
        yield server


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would be slept between two attempts; nothing is slept."""
    slept: list[float] = []

    async def note(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("protoquad_client.transport.sleep", slept.append)
    monkeypatch.setattr("protoquad_client.async_transport.sleep", note)
    monkeypatch.setattr(retrying, "JITTER", 0.0)
    return slept


@pytest.fixture(autouse=True)
def _no_logs() -> Iterator[None]:
    """The service runs in this process: what it logs must not come between the lines of a command."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
def command_line(service: Service) -> Iterator[CommandLine]:
    """Commands about a model of this test's own."""
    name = f"commands-{next(_numbers)}"
    assert service.http.post("/models", json={"name": name}).status_code == 201
    yield CommandLine(service, service.learner(name))
    service.http.delete(f"/models/{name}")


@pytest.fixture
def samples() -> Path:
    return Path(__file__).parents[2] / "console" / "static" / "samples"
