"""Servers for every test that wants one: a database, on SQLite and on PostgreSQL each, and a Redis."""

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from migrations import schema
from store.database import Database
from tests import waiting
from tests.postgresql_databases import PostgresqlDatabases
from tests.postgresql_server import PostgresqlServer
from tests.redis_server import RedisServer

gc.disable()  # until all tests are collected: modules stay, and looking through them again and again takes seconds

# Files and folders whose tests start processes, compile networks, train for long or wait for time limits.
SLOW = (
    *("bench", "browser", "deploy", "docs", "faults", "hostile", "messaging", "migrations", "protoquad", "workers"),
    *("core/test_image_cost", "core/test_torchvision_ops", "engine/test_avx2_kernels", "engine/test_compiled_backbone"),
    *("engine/test_backbone_graphs", "service/test_other_backbones"),
    *("engine/test_decoder_process", "engine/test_engines", "engine/test_graph_template", "engine/test_preparation"),
    *("service/test_cancellation", "service/test_limits", "service/test_session_watch", "store/test_archive"),
    *("core/test_base_session", "core/test_guard", "service/test_auth"),
    *("learners/test_base_publishing", "store/test_long_history", "store/test_many_workers", "store/test_pruning"),
    *("service/test_archives", "service/test_broker_away", "service/test_connections", "service/test_hot_swap"),
    *("service/test_loading", "service/test_news", "service/test_outage", "service/test_remote_worker"),
    *("service/test_replicas", "service/test_schema", "service/test_story", "service/test_inbox"),
    *("service/test_archive_routes", "service/test_measurements", "service/test_webhooks", "service/test_base_"),
    *("client/test_commands", "engine/test_edge_graph", "tracing"),
)


# Tests of what happens in memory and over HTTP: one database is enough for them. The rows behind them are tested on
# both in `store` and `learners`; whole stories, sessions, replicas and outages are tested over HTTP on both.
ON_SQLITE = (
    *("service/test_classes.py", "service/test_models", "service/test_scopes", "service/test_versions"),
    *("service/test_hot_swap", "service/test_loading", "service/test_predict", "service/test_schema"),
    *("service/test_exposition", "service/test_session_watch", "service/test_shots", "service/test_people"),
    *("service/test_corrections", "service/test_events", "service/test_fitted_space", "service/test_measurements"),
    *("service/test_inbox", "service/test_explain", "service/test_archive_routes", "service/test_webhooks"),
    *("service/test_base_routes", "service/test_inference"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what `make test-fast` leaves out: the files above, and the second run of a test on PostgreSQL."""
    kept = []
    for item in items:
        file, callspec = str(item.path.relative_to(Path(__file__).parent)), getattr(item, "callspec", None)
        on_postgresql = callspec is not None and callspec.params.get("backend") == "postgresql"
        if on_postgresql or file.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        if not (on_postgresql and file.startswith(ON_SQLITE)):
            kept.append(item)
    items[:] = kept


def pytest_collection_finish() -> None:
    """Collect garbage again, but never examine what was imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def prepared_backbones(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Path]:
    """Where backbones are made ready for serving: once in a run, by whichever test and process comes first."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "backbones"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PROTOQUAD_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A server for the whole run, started by the first test that asks for it.

    Not in a folder of pytest's: those are closed to the user that the server runs as under root, and their paths may be
    longer than a socket's can be.
    """
    with tempfile.TemporaryDirectory(prefix="protoquad-") as folder:
        server = PostgresqlServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis for the whole run, started by the first test that asks for it; a test that stops one makes its own."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of this test's own; it runs."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    if server.runs:
        server.kill()


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """What is logged in this process."""
    with structlog.testing.capture_logs() as captured:
        yield captured


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], Any], str], None]:
    """Waits until something is true, with a bound."""
    return waiting.until


@pytest.fixture(scope="session")
def _postgresql_databases(postgresql: PostgresqlServer) -> PostgresqlDatabases:
    return PostgresqlDatabases(postgresql, _migrate)


@pytest.fixture(scope="session")
def _migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    _migrate(f"sqlite:///{path}")
    return path


def _migrate(url: str) -> None:
    database = Database(url)
    schema.upgrade(database)
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each test that touches a database, through whichever fixture, runs on both."""
    return str(request.param)


@pytest.fixture
def empty_database_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with nothing in it, not even tables."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
    else:
        yield from _own_postgresql(request, migrated=False)


@pytest.fixture
def database_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of this test's own, migrated and without rows; for tests that start processes."""
    if backend == "sqlite":
        path = tmp_path / "protoquad.db"
        shutil.copyfile(request.getfixturevalue("_migrated_file"), path)
        yield f"sqlite:///{path}"
    else:
        yield from _own_postgresql(request, migrated=True)


def _own_postgresql(request: pytest.FixtureRequest, *, migrated: bool) -> Iterator[str]:
    server: PostgresqlServer = request.getfixturevalue("postgresql")  # here, so that no other test starts it
    databases: PostgresqlDatabases = request.getfixturevalue("_postgresql_databases")
    name = databases.take(migrated=migrated)
    yield server.url(name)
    databases.give_back(name)


@pytest.fixture
def empty_database(empty_database_url: str) -> Iterator[Database]:
    """As `empty_database_url`, connected."""
    opened = Database(empty_database_url)
    yield opened
    opened.close()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database of this test's own, migrated and without rows."""
    opened = Database(database_url)
    yield opened
    opened.close()
