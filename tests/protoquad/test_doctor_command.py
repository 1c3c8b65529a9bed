"""`protoquad doctor`, as somebody types it who wants to know whether all is well."""

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import typer
from click.testing import Result
from sqlalchemy import text
from typer.testing import CliRunner

from migrations import schema
from protoquad import doctor_command
from store import catalogue, classes
from store.database import Database
from store.models import VersionNumber

app = typer.Typer()
app.command()(doctor_command.doctor)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PROTOQUAD_CACHE", str(tmp_path / "backbones"))
    monkeypatch.delenv("PROTOQUAD_DATABASE_URL", raising=False)
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
    assert states(done) == dict.fromkeys(
        ["home", "disk", "deleted images", "database", "schema", "references", "images", "models", "backbones"], "ok"
    )
    assert "3 images" in done.output


def test_a_damaged_image_is_named_with_what_to_do(file: Path) -> None:
    """The other checks are made all the same."""
    change(file, "UPDATE shots SET data = x'ff' WHERE id = 2")

    done = run()

    assert done.exit_code == 1
    assert {what for what, state in states(done).items() if state == "problem"} == {"images"}
    assert "shot 2 of class 1, model 'default'" in done.output
    assert "teach them again" in done.output


def test_damaged_pages_are_a_problem(file: Path) -> None:
    """Found by SQLite itself, though the file opens."""
    change(file, "CREATE TABLE ballast (data BLOB)", "INSERT INTO ballast VALUES (zeroblob(500000))")
    data = bytearray(file.read_bytes())
    data[-200_000:-100_000] = os.urandom(100_000)
    file.write_bytes(data)

    done = run()

    assert done.exit_code == 1, done.output
    assert states(done)["database"] == "problem"
    assert "restore it from a backup" in done.output


def test_a_model_that_cannot_be_served_is_a_problem(file: Path) -> None:
    """Its head must exist, with weights that can be read."""
    change(file, "UPDATE models SET head = 7")

    done = run()

    assert done.exit_code == 1
    assert states(done)["models"] == "problem"
    assert "'default': version 7 does not exist" in done.output


def test_an_older_schema_is_a_problem_and_stays_as_it_is(file: Path) -> None:
    """Looking at a database must not be its upgrade."""
    with closing(Database(f"sqlite:///{file}")) as opened:
        schema.downgrade(opened, "0001")

    done = run()

    assert done.exit_code == 1
    assert states(done)["schema"] == "problem"
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


def test_without_a_home_there_is_nothing_to_look_at(home: Path) -> None:
    """And none is made."""
    refused = run()

    assert refused.exit_code == 2
    assert "there is no database at" in refused.output
    assert not home.exists()


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
    assert set(states(well)) == {"home", "database", "schema", "references", "images", "models", "backbones"}
    assert ill.exit_code == 1
    assert states(ill)["images"] == "problem"
