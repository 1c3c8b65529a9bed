"""The drill of docs/operations.md: its own commands, run; the database destroyed; everything there afterwards."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from store.database import Database
from store.models import Base
from store.settings import Settings
from tests.deploy.conftest import prepared
from tests.deploy.page import commands
from tests.postgresql_server import PostgresqlServer
from tests.processes import Service
from tests.service.conftest import QUICK
from workers.session_worker import SessionWorker

Start = Callable[..., Service]
Shell = Callable[..., str]
Rows = dict[str, list[tuple[Any, ...]]]

COLOURS = ("red", "green", "blue", "violet")


@pytest.fixture
def names(postgresql: PostgresqlServer) -> Iterator[list[str]]:
    """Two databases: the first is empty, the second is for the drill to make; neither is left behind."""
    names = ["drill", "protoquad_restored"]
    postgresql.administer("CREATE DATABASE {}", names[0])
    yield names
    for name in names:
        postgresql.administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def rows(url: str) -> Rows:
    """Everything that a database holds."""
    with closing(Database(url)) as database, database.read() as db:
        return {
            table.name: [tuple(row) for row in db.execute(select(table).order_by(*table.primary_key))]
            for table in Base.metadata.sorted_tables
        }


def learn(url: str, home: Path) -> None:
    """Runs the sessions that wait, as a worker does; in this process, which has imported all that it needs."""
    chosen = Settings(home=home, backbone="resnet32", engine="torch")
    with closing(Database(url)) as database:
        worker = SessionWorker(database, chosen, owner="drill", config=QUICK)
        while worker.run_next():
            pass


def seen(service: Service, version: int) -> dict[str, Any]:
    """What a caller is told: lists, and answers of a version bit for bit."""
    lists = {path: service.everything(path) for path in ("/classes", "/versions", "/sessions")}
    return lists | {colour: service.predict(colour, version=version) for colour in COLOURS}


def taught(service: Service, key: str, url: str, home: Path) -> int:
    """Three classes refined, a fourth whose session nobody has run yet; answers the refined version."""
    service.client.headers["Authorization"] = f"Bearer {key}"
    for name in COLOURS[:3]:
        session = service.teach(name, name).raise_for_status().json()["session"]["id"]
    learn(url, home)
    assert service.session_over(session)["status"] == "succeeded"
    service.teach("violet", "violet").raise_for_status()
    version: int = service.predict("red")["version"]
    return version


def check(service: Service, key: str, url: str, home: Path, version: int, expected: dict[str, Any]) -> None:
    """The same as before, with the same key; and what had not been learned yet is learned now."""
    assert service.client.get("/classes").status_code == 401
    service.client.headers["Authorization"] = f"Bearer {key}"
    assert seen(service, version) == expected
    waiting = [session["id"] for session in expected["/sessions"] if session["status"] == "queued"]
    learn(url, home)
    assert [service.session_over(session)["status"] for session in waiting] == ["succeeded"]
    assert all(item["status"] == "learned" for item in service.everything("/classes"))
    service.teach("afterwards", "black").raise_for_status()


def test_postgresql_comes_back_from_its_dump(
    names: list[str], postgresql: PostgresqlServer, start: Start, shell: Shell, tmp_path: Path
) -> None:
    """Taken while the service runs, restored into a new database on which the service is started anew."""
    lost, restored = map(postgresql.url, names)
    home = tmp_path / "home"
    here = {"PROTOQUAD_DATABASE_URL": lost, "PROTOQUAD_HOME": str(home)}
    there = here | {"PROTOQUAD_DATABASE_URL": restored}
    server = {"PGHOST": str(postgresql.folder), "PGUSER": "postgres"}
    key = prepared(lost)
    service = start(**here)
    version = taught(service, key, lost, home)
    expected, stored = seen(service, version), rows(lost)

    shell(*commands("Back up PostgreSQL"), programs=postgresql.programs, **here)
    service.teach("too late", "orange").raise_for_status()
    service.kill()
    postgresql.administer("DROP DATABASE {} WITH (FORCE)", names[0])
    page = [
        re.sub(r"postgresql://\S*/protoquad_restored", f"'{restored}'", one) for one in commands("Restore PostgreSQL")
    ]
    shell(*page, programs=postgresql.programs, **server)

    assert rows(restored) == stored
    check(start(**there), key, restored, home, version, expected)


def test_a_restore_into_a_database_that_is_not_empty_changes_nothing(
    names: list[str], postgresql: PostgresqlServer, shell: Shell
) -> None:
    """A slip of the name costs nobody's data."""
    here = {"PROTOQUAD_DATABASE_URL": postgresql.url(names[0])}
    prepared(postgresql.url(names[0]))
    shell("deploy/backup.sh early.dump", programs=postgresql.programs, **here)
    prepared(postgresql.url(names[0]))
    stored = rows(postgresql.url(names[0]))

    told = shell("deploy/restore.sh early.dump", programs=postgresql.programs, fails=True, **here)

    assert "already exists" in told
    assert len(stored["api_keys"]) == 2
    assert rows(postgresql.url(names[0])) == stored


def test_a_dump_that_exists_is_not_replaced_and_a_failed_one_leaves_nothing(
    names: list[str], postgresql: PostgresqlServer, shell: Shell, tmp_path: Path
) -> None:
    """Yesterday's backup stays; half a backup is none."""
    shell("echo yesterday > kept.dump")
    here, nowhere = ({"PROTOQUAD_DATABASE_URL": postgresql.url(name)} for name in (names[0], "nowhere"))

    refused = shell("deploy/backup.sh kept.dump", programs=postgresql.programs, fails=True, **here)
    failed = shell("deploy/backup.sh new.dump", programs=postgresql.programs, fails=True, **nowhere)

    assert "exists already" in refused
    assert "does not exist" in failed
    assert {path.name for path in (tmp_path / "operator").iterdir()} == {"deploy", "kept.dump"}
    assert shell("cat kept.dump") == "yesterday\n"


def test_a_password_is_not_on_the_command_line(shell: Shell, tmp_path: Path) -> None:
    """Where everybody on the machine could read it; it reaches the program as the URL means it."""
    programs = tmp_path / "programs"
    programs.mkdir()
    spy = programs / "pg_restore"
    spy.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "password: $PGPASSWORD"\n')
    spy.chmod(0o755)
    (programs / "vacuumdb").symlink_to("/bin/true")
    url = r"postgresql+psycopg://somebody:a%40b%2Fc\d+e@db.example.org:5433/protoquad?sslmode=require"

    told = shell("deploy/restore.sh kept.dump", programs=programs, PROTOQUAD_DATABASE_URL=url).splitlines()

    assert "--dbname=postgresql://somebody@db.example.org:5433/protoquad?sslmode=require" in told
    assert r"password: a@b/c\d+e" in told


@pytest.mark.parametrize("script", ["backup.sh", "restore.sh"])
@pytest.mark.parametrize("url", ["", "sqlite:///somewhere.db"])
def test_the_embedded_database_has_a_command_of_its_own(shell: Shell, script: str, url: str) -> None:
    """Which the scripts name."""
    told = shell(f"deploy/{script} file", fails=True, PROTOQUAD_DATABASE_URL=url)

    assert "protoquad backup" in told


def test_the_embedded_database_comes_back_from_its_backup(start: Start, shell: Shell, tmp_path: Path) -> None:
    """Taken while the service runs, put into a new home on which the service is started anew."""
    home, restored = tmp_path / "home", tmp_path / "operator" / "restored"
    url, restored_url = (f"sqlite:///{folder}/protoquad.db" for folder in (home, restored))
    here = {"PROTOQUAD_HOME": str(home), "PROTOQUAD_WORKER": "false"}
    there = here | {"PROTOQUAD_HOME": str(restored)}
    key = prepared(url)
    service = start(**here)
    version = taught(service, key, url, home)
    expected, stored = seen(service, version), rows(url)

    shell(*commands("Back up the embedded database"), **here)
    service.teach("too late", "orange").raise_for_status()
    service.kill()
    shutil.rmtree(home)
    *put_back, serve = commands("Restore the embedded database")
    shell(*put_back)

    assert serve == "PROTOQUAD_HOME=restored protoquad serve"
    assert rows(restored_url) == stored
    check(start(**there), key, restored_url, restored, version, expected)
