"""`protoquad backup`, as somebody types it while others write."""

import shutil
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import typer
from click.testing import Result
from sqlalchemy import text
from typer.testing import CliRunner

from migrations import schema
from protoquad import backup_command
from store import catalogue, classes
from store.database import Database
from store.models import Model, VersionNumber

SECONDS = 30
ERASED = b"a picture that somebody wants gone" * 500

app = typer.Typer()
app.command()(backup_command.backup)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PROTOQUAD_DATABASE_URL", raising=False)
    return tmp_path / "home"


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    """The embedded one, open as a service has it."""
    with closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as opened:
        schema.upgrade(opened)
        with opened.write() as db:
            catalogue.create(db, "default", "some", 1.0)
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept.db"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def teach(database: Database, name: str, *pictures: bytes) -> int:
    with database.write() as db:
        model = db.get_one(Model, 1)
        row = classes.add(db, model, name, shots=len(pictures), since=VersionNumber(0), session_id=None)
        classes.add_shots(db, model.id, row.id, pictures)
        return row.id


def test_what_was_taught_is_in_the_file_and_nothing_beside_it(database: Database, file: Path) -> None:
    """One file: what the database itself keeps in a log beside it is in there too."""
    teach(database, "red", b"1", b"2")

    done = run(file)

    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in file.parent.iterdir()) == ["home", "kept.db"]
    with closing(sqlite3.connect(file)) as copy:
        assert copy.execute("SELECT data FROM shots ORDER BY id").fetchall() == [(b"1",), (b"2",)]
        assert copy.execute("SELECT version_num FROM alembic_version").fetchall() == [(schema.head(),)]


def test_a_backup_is_of_one_moment_however_much_is_written(database: Database, file: Path) -> None:
    """Each class has the shots it was committed with, and all that was acknowledged before it began is there."""
    with _somebody_teaching(database) as acknowledged:
        for number in range(5):
            before = len(acknowledged)
            assert run(file, "--force").exit_code == 0
            with closing(sqlite3.connect(file)) as copy:
                shots = dict(copy.execute("SELECT class_id, count(*) FROM shots GROUP BY class_id").fetchall())
                known = [row[0] for row in copy.execute("SELECT id FROM classes ORDER BY id")]
            assert known == list(range(1, len(known) + 1)), f"backup {number}"
            assert len(known) >= before
            assert shots == dict.fromkeys(known, 3)


@contextmanager
def _somebody_teaching(database: Database) -> Iterator[list[int]]:
    """Classes of three pictures, one after another, for as long as it takes; none of them waits for long."""
    acknowledged: list[int] = []
    begun, stop = threading.Event(), threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            acknowledged.append(teach(database, f"class {len(acknowledged)}", *[bytes(20_000)] * 3))
            begun.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        assert begun.wait(SECONDS)
        yield acknowledged
        seen = len(acknowledged)
    finally:
        stop.set()
        thread.join(SECONDS)
    assert seen > 5


def test_a_picture_that_was_erased_is_not_in_a_backup(database: Database, file: Path) -> None:
    """Though the database's own file may still have its bytes."""
    gone = teach(database, "gone", ERASED)
    teach(database, "kept", b"another")
    with database.write() as db:
        classes.erase(db, db.get_one(Model, 1).id, gone)

    run(file)

    assert b"somebody wants gone" not in file.read_bytes()
    assert b"another" in file.read_bytes()


def test_damaged_images_are_in_the_backup_and_named(database: Database, file: Path) -> None:
    """All else in it is sound, so it is written; the exit code is for whoever runs it at night."""
    teach(database, "red", b"1", b"2", b"3")
    with database.write() as db:
        db.execute(text("UPDATE shots SET data = x'ff' WHERE id = 2"))

    done = run(file)

    assert done.exit_code == 1
    assert "1 of the images in it are damaged" in done.output
    assert "shot 2 of class 1, model 'default'" in done.output
    with closing(sqlite3.connect(file)) as copy:
        assert copy.execute("SELECT data FROM shots ORDER BY id").fetchall() == [(b"1",), (b"\xff",), (b"3",)]


def test_an_older_database_is_kept_as_it_is(database: Database, file: Path, home: Path) -> None:
    """A backup before an upgrade is of the tables before it, and leaves them as they are."""
    schema.downgrade(database, "0001")

    assert run(file).exit_code == 0

    for place in (file, home / "protoquad.db"):
        with closing(Database(f"sqlite:///{place}")) as opened:
            assert schema.current(opened) == "0001"


@pytest.mark.usefixtures("database")
def test_only_its_owner_may_read_it(file: Path) -> None:
    """It holds pictures and the digests of keys."""
    run(file)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.usefixtures("database")
def test_a_file_that_exists_is_replaced_only_if_asked(file: Path) -> None:
    """Yesterday's backup is not lost to a typing error."""
    file.write_text("yesterday")

    refused = run(file)

    assert (refused.exit_code, file.read_text()) == (2, "yesterday")
    assert "--force" in refused.output
    assert run(file, "--force").exit_code == 0


def test_a_home_without_a_database_is_named(home: Path, file: Path) -> None:
    """Nothing comes into being there."""
    refused = run(file)

    assert refused.exit_code == 2
    assert str(home) in refused.output.replace("\n", "")
    assert not home.exists()
    assert not file.exists()


def test_a_database_that_is_damaged_is_refused(database: Database, home: Path, file: Path) -> None:
    """Now, and not on the day when the backup is needed; what was kept before stays."""
    teach(database, "red", *[bytes(50_000)] * 3)
    database.close()
    path = home / "protoquad.db"
    shutil.copyfile(path, file)
    with path.open("r+b") as damaged:
        damaged.seek(8192)
        damaged.write(b"\xff" * 60_000)
    before = file.read_bytes()

    refused = run(file, "--force")

    assert refused.exit_code == 2
    assert "cannot be read whole" in refused.output
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir()) == ["home", "kept.db"]


def test_postgresql_is_referred_to_its_own_tools(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """They keep what this command could not."""
    monkeypatch.setenv("PROTOQUAD_DATABASE_URL", "postgresql://somebody@example.org/protoquad")

    refused = run(file)

    assert refused.exit_code == 2
    assert "pg_dump" in refused.output
