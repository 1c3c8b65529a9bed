"""`protoquad export` and `protoquad import`, as somebody types them."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from migrations import schema
from protoquad import archive_commands
from store import archive, catalogue, classes, versions
from store.database import Database
from store.models import VersionNumber
from store.versions import PrototypeRow

PROTOTYPE = bytes(range(256))
WEIGHTS = bytes(range(255, -1, -1)) * 30

app = typer.Typer()
app.command()(archive_commands.export)
app.command("import")(archive_commands.import_)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder that the settings name, made by a service that knows two models."""
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "home"))
    with closing(Database(f"sqlite:///{tmp_path / 'home' / 'protoquad.db'}")) as database:
        schema.upgrade(database)
        for name in ("birds", "bees"):
            fill(database, name)
    return tmp_path / "home"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder for archives."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def other_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """From then on the settings name another home, which does not exist yet."""

    def move() -> Path:
        monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "other"))
        return tmp_path / "other"

    return move


def fill(database: Database, name: str) -> None:
    with database.write() as db:
        model = catalogue.create(db, name, "resnet32", 0.25)
        own = classes.add(db, model, "wren", shots=1, since=VersionNumber(1))
        classes.add_shots(db, model.id, own.id, [b"a picture"])
        versions.add(
            db,
            model,
            "base",
            parent=versions.get(db, model.id, 0),
            classes=1,
            temperature=1 / 3,
            threshold=0.5,
            weights=WEIGHTS,
            prototypes=[PrototypeRow(own.id, PROTOTYPE, 1, restart=True)],
        )


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(result: Result) -> str:
    """What a refused command said, which is all it said on standard error."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def names(home: Path) -> list[str]:
    with closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as database, database.read() as db:
        return [model.name for model in catalogue.everything(db)]


def answers_from(database: Database, name: str) -> list[Any]:
    """All that an answer is computed from."""
    with database.read() as db:
        model = catalogue.get(db, name)
        head = versions.get(db, model.id, model.head)
        bank = versions.remembered(db, model.id, head.number)
        blobs = versions.weights(db, model.id, head.weights)
        return [model.backbone, head.temperature, head.threshold, bank, blobs, classes.names(db, model.id)]


# There and back


def test_a_model_answers_the_same_in_another_home(home: Path, out: Path, other_home: Callable[[], Path]) -> None:
    """The home it arrives in is made on the way, and the model is the only one in it."""
    exported = run("export", "birds", out / "birds.pq")
    other = other_home()

    imported = run("import", out / "birds.pq")

    assert (exported.exit_code, imported.exit_code) == (0, 0), exported.output + imported.output
    assert "model 'birds' is in" in exported.stdout
    assert "model 'birds' is here: version 1, 1 class" in imported.stdout
    assert "1 of them will be refined by the session that is queued now" in imported.stdout
    assert names(other) == ["birds"]
    with (
        closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as before,
        closing(Database(f"sqlite:///{other / 'protoquad.db'}")) as after,
    ):
        assert answers_from(after, "birds") == answers_from(before, "birds")


def test_a_model_travels_to_any_database(database: Database, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of SQLite, into the database that the settings name, and out of that again."""
    run("export", "birds", out / "first.pq")
    monkeypatch.setenv("PROTOQUAD_DATABASE_URL", database.url)

    imported = run("import", out / "first.pq", "--model", "moved")
    exported = run("export", "moved", out / "second.pq")

    assert (imported.exit_code, exported.exit_code) == (0, 0), imported.output + exported.output
    with closing(sqlite3.connect(out / "second.pq")) as connection:
        assert connection.execute("SELECT vector FROM prototypes").fetchall() == [(PROTOTYPE,)]
        assert connection.execute("SELECT data FROM weights").fetchall() == [(WEIGHTS,)]
        assert connection.execute("SELECT name FROM models").fetchall() == [("moved",)]


def test_a_model_can_be_named_anew(home: Path, out: Path) -> None:
    """Beside the one it was exported from."""
    run("export", "birds", out / "birds.pq")

    result = run("import", out / "birds.pq", "--model", "copy")

    assert result.exit_code == 0, result.output
    assert names(home) == ["bees", "birds", "copy"]


# Export


def test_an_archive_is_not_overwritten_unless_forced(out: Path) -> None:
    """The sentence names the option."""
    file = out / "birds.pq"
    file.write_text("precious")

    refused = sentence(run("export", "birds", file))

    assert "exists already; name another file, or replace it with --force" in refused
    assert file.read_text() == "precious"
    assert run("export", "birds", file, "--force").exit_code == 0
    assert archive.label(file).model == "birds"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_export_that_breaks_off_leaves_what_was_there(
    out: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    """No half archive and nothing beside it, even where a file was to be replaced."""
    file = out / "birds.pq"
    file.write_text("precious")
    write = archive.write

    def interrupted(*arguments: Any) -> None:
        write(*arguments)
        raise stop

    monkeypatch.setattr(archive, "write", interrupted)

    result = run("export", "birds", file, "--force")

    assert result.exit_code == (130 if stop is KeyboardInterrupt else 2)
    assert [entry.name for entry in out.iterdir()] == ["birds.pq"]
    assert file.read_text() == "precious"


def test_a_file_that_appears_meanwhile_is_kept(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for once more before the archive takes its place."""
    write = archive.write

    def slow(*arguments: Any) -> None:
        write(*arguments)
        (out / "birds.pq").write_text("precious")

    monkeypatch.setattr(archive, "write", slow)

    assert "came into being meanwhile" in sentence(run("export", "birds", out / "birds.pq"))

    assert (out / "birds.pq").read_text() == "precious"


def test_an_export_that_cannot_be_is_a_sentence(home: Path, out: Path, other_home: Callable[[], Path]) -> None:
    """No such model, no such folder, a folder for a file, the database itself, and no database at all."""
    assert "no model named 'ants'; there are 'bees', 'birds'" in sentence(run("export", "ants", out / "a"))
    assert "none does not exist; make it first" in sentence(run("export", "birds", out / "none" / "a"))
    assert "is a folder; name a file in it" in sentence(run("export", "birds", out))
    itself = sentence(run("export", "birds", home / "protoquad.db", "--force"))
    assert "is the database itself; name another file" in itself
    other = other_home()
    assert "there is no database at" in sentence(run("export", "birds", out / "a"))

    assert list(out.iterdir()) == []
    assert not other.exists()
    assert names(home) == ["bees", "birds"]


# Import


def test_an_import_that_cannot_be_is_a_sentence(home: Path, out: Path) -> None:
    """A name that is taken, one that cannot be, a file that is missing, and one that is no archive."""
    run("export", "birds", out / "birds.pq")

    assert "a model named 'birds' already; give this one another name with --model" in sentence(
        run("import", out / "birds.pq")
    )
    assert "'My Birds' cannot name a model" in sentence(run("import", out / "birds.pq", "--model", "My Birds"))
    assert "nothing cannot be read: No such file" in sentence(run("import", out / "nothing"))
    assert "is a database, but not an archive" in sentence(run("import", home / "protoquad.db"))

    assert names(home) == ["bees", "birds"]


def test_a_damaged_archive_changes_nothing(home: Path, out: Path) -> None:
    """One bit of a prototype is enough."""
    file = out / "birds.pq"
    run("export", "birds", file)
    whole = file.read_bytes()
    at = whole.index(PROTOTYPE) + 7
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])

    assert "is damaged (its content is not what was written)" in sentence(run("import", file, "--model", "copy"))

    assert names(home) == ["bees", "birds"]


def test_an_archive_of_a_newer_release_is_a_sentence(home: Path, tmp_path: Path) -> None:
    """Its schema is one that this release has never heard of."""
    file = tmp_path / "newer.pq"
    with closing(Database(f"sqlite:///{file}")) as made:
        schema.upgrade(made)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as database:
        archive.write(database, "birds", file)

    refused = sentence(run("import", file, "--model", "copy"))

    assert "newer.pq was written by a newer release: its schema is 9999, this release knows" in refused
    assert names(home) == ["bees", "birds"]
    assert not list(home.glob(".protoquad-import-*"))


@pytest.fixture
def read_from(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Which files models were read from."""
    read = archive.read
    paths: list[Path] = []

    def noted(path: Path, *arguments: Any) -> Any:
        paths.append(path)
        return read(path, *arguments)

    monkeypatch.setattr(archive, "read", noted)
    return paths


def test_an_archive_of_an_older_release_is_migrated_aside(
    home: Path, out: Path, monkeypatch: pytest.MonkeyPatch, read_from: list[Path]
) -> None:
    """In a copy that is gone afterwards; the archive stays readable for the release that wrote it."""
    file = out / "birds.pq"
    run("export", "birds", file)
    before = file.read_bytes()
    migrated: list[str] = []
    upgrade = schema.upgrade

    def noted(database: Database) -> None:
        migrated.append(database.url)
        upgrade(database)

    monkeypatch.setattr(schema, "head", lambda: "9999")  # as if this release were younger than the archive
    monkeypatch.setattr(schema, "upgrade", noted)

    result = run("import", file, "--model", "copy")

    assert result.exit_code == 0, result.output
    assert names(home) == ["bees", "birds", "copy"]
    (path,) = read_from
    assert path != file
    assert migrated[-1] == f"sqlite:///{path}"
    assert not path.exists()
    assert file.read_bytes() == before
    assert [entry.name for entry in out.iterdir()] == ["birds.pq"]


def test_an_archive_of_this_release_is_read_where_it_is(out: Path, read_from: list[Path]) -> None:
    """It may have gigabytes: no copy is made of it."""
    run("export", "birds", out / "birds.pq")

    run("import", out / "birds.pq", "--model", "copy")

    assert read_from == [out / "birds.pq"]
