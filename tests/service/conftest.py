"""Ways to ask an application: within the process, and over a real socket where timing and connections matter.

The whole service runs once for each kind of database; a test that needs only a model of its own gets one there.
"""

import asyncio
import random
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
import uvicorn
from fastapi import FastAPI
from PIL import Image, ImageDraw
from starlette.types import ASGIApp
from torch import Tensor

from core.guard import Measured, Verdict
from core.incremental_session import IncrementalConfig
from learners.refining import Learned, SessionConfig, learn
from service.app import create_app
from service.connection_limits import ConnectionLimits
from service.connection_protocol import Connection
from service.connections import Connections
from service.dependencies import AppContext
from store import api_keys
from store.database import Database
from store.settings import Settings
from tests.waiting import until
from workers.session_worker import SessionWorker

SECONDS = 10.0  # bound of every wait: reached only by a test that fails
SECONDS_TO_ANSWER = 60.0  # bound of every request, on a machine that is busy with something else
LIMITS = ConnectionLimits(connections=1000, head_seconds=10, body_seconds=60)
SHOTS = 3
SIDE = 40
SELDOM = 0.25  # seconds between looks of the services that all tests share: they are idle most of the time


def promoted(before: Measured, after: Measured) -> Verdict:
    """A gate that everything passes: on so few pictures the real one could tell nothing from chance."""
    return Verdict(True, "everything is promoted", before.accuracy, after.accuracy)


# Two steps of training on a few images, half of which is taken over, and one augmented view: what is tested here is
# what happens around them. Without the search every session trains and fits its space, however few its shots are.
QUICK = SessionConfig(IncrementalConfig(epochs=1, episodes=2, batch=6, search=False), augmented=1, judge=promoted)
COLOURS = {
    "red": (200, 40, 40),
    "green": (40, 170, 60),
    "blue": (40, 60, 200),
    "yellow": (220, 210, 40),
    "violet": (150, 50, 190),
    "orange": (240, 140, 30),
    "cyan": (40, 200, 210),
}

Ask = Callable[..., httpx.Response]
Draw = Callable[..., bytes]


@pytest.fixture(scope="session")
def ask() -> Ask:
    """One request within the process; an exception that leaves the application fails the test."""

    def send(app: ASGIApp, method: str, path: str, *, raises: bool = True, **options: Any) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
                return await client.request(method, path, **options)

        return asyncio.run(request())

    return send


class Server(uvicorn.Server):
    """A server in a thread, on a port of its own, with the connections of `protoquad serve`."""

    def __init__(self, app: ASGIApp, lifespan: Any = "off", limits: ConnectionLimits = LIMITS) -> None:
        self.group = Connections(limits)
        http: Any = partial(Connection, group=self.group)
        super().__init__(
            uvicorn.Config(app, http=http, lifespan=lifespan, ws="none", log_config=None, timeout_graceful_shutdown=5)
        )
        self.ready = threading.Event()
        # Named as TCP, as `protoquad serve` does: otherwise every answer waits 40 ms for Nagle's algorithm.
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.sweeping = asyncio.create_task(self.group.sweep_forever(self.server_state.connections))
        self.ready.set()

    @contextmanager
    def running(self) -> Iterator["Server"]:
        thread = threading.Thread(target=self.run, args=([self.listener],), daemon=True)
        thread.start()
        assert self.ready.wait(SECONDS_TO_ANSWER), "the server did not start"
        yield self
        self.should_exit = True
        thread.join(SECONDS)
        self.listener.close()
        assert not thread.is_alive(), "the server did not stop"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), SECONDS)

    def converse(self, *messages: bytes) -> bytes:
        """Say these bytes, then hear the server out until it closes the connection."""
        with self.connect() as connection:
            for message in messages:
                connection.sendall(message)
            return hear_out(connection)


def hear_out(connection: socket.socket) -> bytes:
    heard = b""
    while chunk := connection.recv(65536):
        heard += chunk
    return heard


@pytest.fixture
def serve() -> Iterator[Callable[[ASGIApp], Server]]:
    """Starts applications on real sockets and stops them after the test."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(Server(app).running())


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """What is logged, with all that the context adds."""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as captured:
        yield captured


# The whole service


@pytest.fixture(scope="session", autouse=True)
def _plain_tracebacks() -> None:
    """As `protoquad serve` logs them: drawing the locals of a failed request would take seconds."""
    *before, _ = structlog.get_config()["processors"]
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*before, renderer])


def _draw(look: str, number: int | None = None) -> bytes:
    """A picture: of a colour, each number another shade with a dot elsewhere; or `stripes`, which look like no colour.

    Without a number it is the most typical one.
    """
    rng = random.Random(f"{look} {number}")
    if look == "stripes":
        image = Image.new("RGB", (SIDE, SIDE), "white")
        for top in range(0, SIDE, 6):
            ImageDraw.Draw(image).rectangle((0, top, SIDE, top + 2), fill="black")
    else:
        far = 0 if number is None else 10
        red, green, blue = (part + rng.randint(-far, far) for part in COLOURS[look])
        image = Image.new("RGB", (SIDE, SIDE), (red, green, blue))
        x, y = (20 + rng.randint(-far, far) for _ in range(2))
        ImageDraw.Draw(image).ellipse((x - 4, y - 4, x + 4, y + 4), fill="black")
    encoded = BytesIO()
    image.save(encoded, format="PNG")
    return encoded.getvalue()


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Draws `red`, `green` and so on, the same picture for the same number; without one, the most typical."""
    return _draw


class Service:
    """The application as it is served, with the store and a worker beside it."""

    def __init__(self, app: FastAPI, server: Server, settings: Settings, database: Database) -> None:
        self.app = app
        self.url = server.url
        self.settings = settings
        self.database = database
        self.http = httpx.Client(base_url=server.url, timeout=SECONDS_TO_ANSWER, verify=False)  # without certificates
        self.worker = self.make_worker()
        self.keys: dict[str, str] = {}

    def make_worker(self, config: SessionConfig = QUICK, **options: Any) -> SessionWorker:
        return SessionWorker(self.database, self.settings, owner="test", config=config, **options)

    @property
    def context(self) -> AppContext:
        found: AppContext = self.app.state.context
        return found

    def learner(self, name: str = "default") -> "Learner":
        return Learner(self, name)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """The engine at a standstill until this is left: what is asked of it waits."""
        network = self.context.versions.active("default").network
        reached, go_on = threading.Event(), threading.Event()

        def wait(pictures: Tensor) -> Tensor:
            reached.set()
            assert go_on.wait(SECONDS_TO_ANSWER), "nobody let the engine go on"
            return network.trunk(pictures)

        stuck = self.context.predictor.features(replace(network, trunk=wait), list(network.framing.blank()))
        assert reached.wait(SECONDS), "the engine did not take the job up"
        try:
            yield
        finally:
            go_on.set()
            stuck.result(SECONDS)


class Learner:
    """One model, as a caller over HTTP sees it. A picture is named by its look; a class by what is drawn for it."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.name = name
        self.prefix = "" if name == "default" else f"/models/{name}"

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.service.http.request(method, self.prefix + path, **options)

    def get(self, path: str, **params: Any) -> Any:
        """The answer's content; it must be an answer."""
        return _content(self.ask("GET", path, params=params))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("POST", path, **options)

    def teach(self, look: str, name: str | None = None, **headers: str) -> httpx.Response:
        return self.post("/classes", data={"name": name or look}, files=shots_of(look), headers=_headers(headers))

    def taught(self, *looks: str) -> list[dict[str, Any]]:
        """Classes named by their looks, from three pictures each."""
        return [_content(self.teach(look))["class"] for look in looks]

    def show_more(self, class_id: int, look: str, numbers: range = range(3, 5), **headers: str) -> httpx.Response:
        """Two more pictures, unless said otherwise."""
        return self.post(f"/classes/{class_id}/shots", files=shots_of(look, numbers), headers=_headers(headers))

    def delete(self, class_id: int) -> None:
        assert self.ask("DELETE", f"/classes/{class_id}").status_code == 204

    def rename(self, class_id: int, name: str) -> Any:
        return _content(self.ask("PATCH", f"/classes/{class_id}", json={"name": name}))

    def activate(self, number: int) -> Any:
        return _content(self.post(f"/versions/{number}/activate"))

    def predict(self, *looks: str, **params: Any) -> Any:
        """The whole answer for a typical picture of each look, none of which was taught with."""
        files = [("images", (f"{look}.png", _draw(look), "image/png")) for look in looks]
        return _content(self.post("/predict", files=files, params=params))

    def predict_one_by_one(self, *looks: str, **params: Any) -> Any:
        """As `predict`, for answers to be compared to the last digit: how many images a batch has changes that one."""
        answers = [self.predict(look, **params) for look in looks]
        return {**answers[-1], "predictions": [found for answer in answers for found in answer["predictions"]]}

    def labels(self, *looks: str, **params: Any) -> list[str | None]:
        return [found["label"] for found in self.predict(*looks, **params)["predictions"]]

    @property
    def version(self) -> int:
        """The one in force, by what the store says."""
        return int(_content(self.service.http.get(f"/models/{self.name}"))["version"])

    def classes(self) -> dict[str, dict[str, Any]]:
        return {found["name"]: found for found in self.get("/classes")["items"]}

    def catch_up(self) -> None:
        """Wait until this replica serves what the store says; it looks at once."""
        self.service.context.versions.poll()
        until(lambda: self.predict("red")["version"] == self.version, "the newest version is served")

    def refine(self, worker: SessionWorker | None = None) -> Any:
        """Run the session that waits, and serve what comes of it."""
        session = self.get("/sessions")["items"][0]
        assert session["status"] == "queued"
        assert (worker or self.service.worker).run_next(session["id"])
        self.catch_up()
        return self.get(f"/sessions/{session['id']}")


def shots_of(look: str, numbers: range = range(SHOTS), field: str = "shots") -> list[tuple[str, Any]]:
    return [(field, (f"{look}-{number}.png", _draw(look, number), "image/png")) for number in numbers]


def _headers(named: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in named.items()}


def _content(response: httpx.Response) -> Any:
    assert response.is_success, response.text
    return response.json()


@contextmanager
def running_service(database: Database, home: Path, **settings: Any) -> Iterator[Service]:
    """Quick: a small network, sessions that are ready at once, news every few milliseconds."""
    quick = {"backbone": "resnet32", "engine": "torch", "session_delay": 0, "poll_seconds": 0.05, "home": home}
    chosen = Settings(**{**quick, **settings})
    app = create_app(chosen, database)
    with Server(app, lifespan="on").running() as server:
        service = Service(app, server, chosen, database)
        yield service
        service.http.close()


@pytest.fixture
def start(database: Database, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts the service over this test's own database, as often as asked, with these settings.

    A `replica` has connections of its own, as another process would.
    """
    with ExitStack() as stack:

        def started(*, replica: bool = False, **settings: Any) -> Service:
            own = Database(database.url) if replica else database
            stack.callback(own.close)
            return stack.enter_context(running_service(own, tmp_path, **settings))

        yield started


@pytest.fixture(scope="session")
def _services(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Service]]:
    """The service over each kind of database, open or with keys, started by the first test that asks for it."""
    running: dict[tuple[str, bool], Service] = {}
    with ExitStack() as stack:

        def found(backend: str, *, locked: bool = False) -> Service:
            if (backend, locked) not in running:
                home = tmp_path_factory.mktemp("service")
                database = Database(_own_database(request, backend, home))
                stack.callback(database.close)
                keys = _made_keys(database) if locked else {}
                running[backend, locked] = stack.enter_context(running_service(database, home, poll_seconds=SELDOM))
                running[backend, locked].keys = keys
            return running[backend, locked]

        yield found


def _made_keys(database: Database) -> dict[str, str]:
    with database.write() as db:
        return {scope: api_keys.create(db, scope, [scope]) for scope in api_keys.SCOPES}


def _own_database(request: pytest.FixtureRequest, backend: str, home: Path) -> str:
    if backend == "sqlite":
        shutil.copyfile(request.getfixturevalue("_migrated_file"), home / "protoquad.db")
        return f"sqlite:///{home / 'protoquad.db'}"
    name: str = request.getfixturevalue("_postgresql_databases").take(migrated=True)
    url: str = request.getfixturevalue("postgresql").url(name)
    return url


@pytest.fixture
def service(backend: str, _services: Callable[..., Service]) -> Service:
    """The one that all tests on a kind of database share; what they must not share is a model."""
    return _services(backend)


@pytest.fixture
def locked_service(backend: str, _services: Callable[..., Service]) -> Service:
    """Another one, for which a key of each scope was made; `keys` holds them by scope."""
    return _services(backend, locked=True)


_numbers = count(1)


@pytest.fixture
def learner(service: Service) -> Iterator[Learner]:
    """A model of this test's own, on the service that all share."""
    name = f"model-{next(_numbers)}"
    assert service.http.post("/models", json={"name": name}).status_code == 201
    yield service.learner(name)
    service.http.delete(f"/models/{name}")


@pytest.fixture
def interrupted(service: Service) -> Callable[[Callable[[], object]], SessionWorker]:
    """Makes a worker that does this in each session, between learning and publishing."""

    def make(meanwhile: Callable[[], object]) -> SessionWorker:
        def learn_then(*arguments: Any) -> Learned:
            learned = learn(*arguments)
            meanwhile()
            return learned

        return service.make_worker(learn=learn_then)

    return make
