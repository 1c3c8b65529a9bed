"""`protoquad doctor`, as somebody types it who wants to know whether all is well."""

import contextlib
import fcntl
import json
import os
import socket
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from click.testing import Result
from sqlalchemy import text
from typer.testing import CliRunner

from migrations import schema
from protoquad import doctor_command, installation_findings
from store import catalogue, classes
from store.database import Database
from store.heartbeats import heartbeat_folder
from store.models import VersionNumber
from tests.redis_server import RedisServer

INSTALLATION = ["python", "packages", "redis", "backbones"]
STORED = ["home", "disk", "deleted images", "database", "schema", "references", "images", "models"]
app = typer.Typer()
app.command()(doctor_command.doctor)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROTOQUAD_CACHE", str(tmp_path / "backbones"))
    monkeypatch.setenv("PROTOQUAD_PORT", str(free_port()))
    for name in ("PROTOQUAD_DATABASE_URL", "PROTOQUAD_BROKER_URL", "PROTOQUAD_URL", "PROTOQUAD_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def file(home: Path) -> Iterator[Path]:
    """An embedded database with a class of three images."""
    path = home / "protoquad.db"
    with closing(Database(f"sqlite:///{path}")) as opened:
        schema.upgrade(opened)
        fill(opened)
    return path


def fill(database: Database) -> None:
    with database.write() as db:
        model = catalogue.create(db, "default", "some", 1.0)
        row = classes.add(db, model, "red", shots=3, since=VersionNumber(0), session_id=None)
        classes.add_shots(db, model.id, row.id, [b"1", b"2", b"3"])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def states(done: Result) -> dict[str, str]:
    """Each check with its verdict."""
    lines = [line for line in done.output.splitlines() if line.strip()]
    return {line[9:25].strip(): line[:8].strip() for line in lines}


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.usefixtures("file")
def test_all_is_well_with_a_home_that_nobody_has_touched() -> None:
    """One line for each check, and exit code 0."""
    done = run()

    assert done.exit_code == 0, done.output
    assert states(done) == {**dict.fromkeys([*INSTALLATION, *STORED, "port"], "ok"), "service": "warning"}
    assert "3 images" in done.output


def test_a_damaged_image_is_named_with_what_to_do(file: Path) -> None:
    """The other checks are made all the same."""
    change(file, "UPDATE shots SET data = x'ff' WHERE id = 2")

    done = run()

    assert done.exit_code == 1
    assert {what for what, state in states(done).items() if state == "error"} == {"images"}
    assert "shot 2 of class 1, model 'default'" in done.output
    assert "teach them again" in done.output


def test_damaged_pages_are_an_error(file: Path) -> None:
    """Found by SQLite itself, though the file opens."""
    change(file, "CREATE TABLE ballast (data BLOB)", "INSERT INTO ballast VALUES (zeroblob(500000))")
    data = bytearray(file.read_bytes())
    data[-200_000:-100_000] = os.urandom(100_000)
    file.write_bytes(data)

    done = run()

    assert done.exit_code == 1, done.output
    assert states(done)["database"] == "error"
    assert "restore it from a backup" in done.output


def test_a_model_that_cannot_be_served_is_an_error(file: Path) -> None:
    """Its head must exist, with weights that can be read."""
    change(file, "UPDATE models SET head = 7")

    done = run()

    assert done.exit_code == 1
    assert states(done)["models"] == "error"
    assert "'default': version 7 does not exist" in done.output


def test_an_older_schema_is_an_error_and_stays_as_it_is(file: Path) -> None:
    """Looking at a database must not be its upgrade."""
    with closing(Database(f"sqlite:///{file}")) as opened:
        schema.downgrade(opened, "0001")

    done = run()

    assert done.exit_code == 1
    assert states(done)["schema"] == "error"
    assert "protoquad migrate" in done.output
    with closing(Database(f"sqlite:///{file}")) as opened:
        assert schema.current(opened) == "0001"


def test_a_broken_backbone_is_a_warning(file: Path, tmp_path: Path) -> None:
    """The next start makes it again."""
    broken = tmp_path / "backbones" / "some-0123"
    broken.mkdir(parents=True)
    (broken / "manifest.json").write_text("{}")

    done = run()

    assert done.exit_code == 0, file
    assert states(done)["backbones"] == "warning"
    assert str(broken) in done.output


def test_rights_of_others_are_a_warning_and_taken_away_only_if_asked(file: Path) -> None:
    """Somebody may have given them on purpose."""
    file.parent.chmod(0o755)
    file.chmod(0o644)

    warned = run()

    assert warned.exit_code == 0
    assert states(warned)["home"] == "warning"
    assert f"chmod 700 {file.parent} && chmod 600 {file}" in warned.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert states(run("--fix"))["home"] == "ok"
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_images_that_an_earlier_release_deleted_are_overwritten_if_asked(file: Path) -> None:
    """Such a release left them in pages that are free."""
    erased = b"an image that somebody wants gone" * 500
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA user_version = 0")
        connection.execute("UPDATE shots SET data = ? WHERE id = 2", (erased,))
        connection.commit()
        connection.execute("UPDATE shots SET data = x'32' WHERE id = 2")
        connection.commit()
    assert b"somebody wants gone" in file.read_bytes()

    warned, fixed = run(), run("--fix")

    assert states(warned)["deleted images"] == "warning"
    assert fixed.exit_code == 0, fixed.output
    assert states(fixed)["deleted images"] == "ok"
    assert b"somebody wants gone" not in b"".join(path.read_bytes() for path in file.parent.iterdir())
    assert states(run())["images"] == "ok"


def test_a_database_is_not_rebuilt_under_a_running_service(file: Path) -> None:
    """Nobody could teach for as long as that takes."""
    change(file, "PRAGMA user_version = 0")
    with (file.parent / "serve.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        refused = run("--fix")

    assert refused.exit_code == 2
    assert "a service runs on" in refused.output


def test_without_a_home_the_rest_is_looked_at(home: Path) -> None:
    """And none is made."""
    done = run()

    assert done.exit_code == 1
    assert {what for what, state in states(done).items() if state == "error"} == {"database"}
    assert "there is no database at" in done.output
    assert not home.exists()


@pytest.mark.usefixtures("file")
def test_programs_get_json() -> None:
    """All findings as one list."""
    found = json.loads(run("--json").stdout)

    assert {"state": "ok", "what": "schema"}.items() <= next(one for one in found if one["what"] == "schema").items()
    assert {one["state"] for one in found} == {"ok", "warning"}


@pytest.mark.usefixtures("file")
def test_another_program_on_the_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service could not start."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("PROTOQUAD_PORT", str(listener.getsockname()[1]))
        listener.listen()
        threading.Thread(target=_hang_up, args=(listener,), daemon=True).start()

        done = run()

    assert done.exit_code == 1
    assert states(done)["port"] == "error"
    assert "set PROTOQUAD_PORT to another" in done.output


def _hang_up(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


@pytest.mark.usefixtures("file")
def test_redis_is_asked_if_it_is_set(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the database is polled, so that is a warning."""
    monkeypatch.setenv("PROTOQUAD_BROKER_URL", redis.url)
    well = run()
    redis.kill()
    away = run()

    assert states(well)["redis"] == "ok"
    assert "answers" in well.output
    assert states(away)["redis"] == "warning"
    assert "PROTOQUAD_BROKER_URL" in away.output


def test_a_worker_without_progress_is_a_warning(file: Path) -> None:
    """Its process may be gone."""
    beat = heartbeat_folder(file.parent) / "here-1.heartbeat"
    beat.parent.mkdir()
    beat.touch()
    well = run()
    os.utime(beat, (0, 0))
    stalled = run()

    assert states(well)["worker"] == "ok"
    assert states(stalled)["worker"] == "warning"


@pytest.mark.usefixtures("file")
def test_versions_other_than_those_that_were_tested_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is named with both versions; what is not installed does not matter."""
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("# tested\nclick==0.0.1\nnowhere-to-be-found==1.0\n")
    monkeypatch.setattr(installation_findings, "CONSTRAINTS", constraints)

    done = run()

    assert states(done)["packages"] == "warning"
    assert f"click is {version('click')}, not 0.0.1" in done.output
    assert "nowhere" not in done.output


def test_a_database_that_is_away_is_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting that names it, and without its password."""
    url = f"postgresql://somebody:hunter2@127.0.0.1:{free_port()}/protoquad"
    monkeypatch.setenv("PROTOQUAD_DATABASE_URL", url)

    done = run()

    assert done.exit_code == 1, home
    assert states(done)["database"] == "error"
    assert "correct PROTOQUAD_DATABASE_URL" in done.output
    assert "hunter2" not in done.output


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_postgresql_is_looked_at_too(
    database: Database, database_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same checks, but for the file that it does not have."""
    monkeypatch.setenv("PROTOQUAD_DATABASE_URL", database_url)
    fill(database)
    well = run()
    with database.write() as db:
        db.execute(text("UPDATE shots SET data = '\\xff' WHERE id = 2"))
    ill = run()

    assert well.exit_code == 0, (home, well.output)
    assert set(STORED) - set(states(well)) == {"deleted images"}
    assert ill.exit_code == 1
    assert states(ill)["images"] == "error"
