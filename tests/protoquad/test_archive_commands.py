"""`protoquad export` and `protoquad import`, as somebody types them."""

import shutil
import sqlite3
import subprocess
import sys
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
from store import archive, bank_rows, catalogue, classes, versions
from store.database import Database
from tests import archives

app = typer.Typer()
app.command()(archive_commands.export)
app.command("import")(archive_commands.import_)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with two models in it."""
    path = tmp_path_factory.mktemp("filled") / "protoquad.db"
    with closing(Database(f"sqlite:///{path}")) as database:
        schema.upgrade(database)
        for name in ("birds", "bees"):
            archives.fill(database, name)
    archive.settle(path)
    return path


@pytest.fixture(autouse=True)
def home(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder that the settings name, made by a service that knows two models."""
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    shutil.copyfile(filled, tmp_path / "home" / "protoquad.db")
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


def content(file: Path) -> list[list[Any]]:
    with closing(sqlite3.connect(file)) as connection:
        columns = ("name FROM models", "vector FROM prototypes", "data FROM weights", "data FROM shots")
        return [connection.execute(f"SELECT {column}").fetchall() for column in columns]


def answers_from(database: Database, name: str) -> list[Any]:
    """All that an answer is computed from."""
    with database.read() as db:
        model = catalogue.get(db, name)
        head = versions.get(db, model.id, model.head)
        bank = bank_rows.read_bank(db, model.id, head.number)
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
    assert "model 'birds' is here: version 6, 2 classes" in imported.stdout
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
    first, second = (content(out / name) for name in ("first.pq", "second.pq"))
    assert [names for names, *_ in (first, second)] == [[("birds",)], [("moved",)]]
    assert first[1:] == second[1:]


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


def test_an_export_without_room_is_a_sentence(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where SQLite finds it out when the archive is sealed."""
    monkeypatch.setattr(archive, "seal", archives.write_without_room)

    assert "the disk is full" in sentence(run("export", "birds", out / "birds.pq"))

    assert list(out.iterdir()) == []


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
    assert "is a database but not an archive" in sentence(run("import", home / "protoquad.db"))

    assert names(home) == ["bees", "birds"]


def test_a_damaged_archive_changes_nothing(home: Path, out: Path) -> None:
    """One bit of a prototype is enough."""
    file = out / "birds.pq"
    run("export", "birds", file)
    whole = file.read_bytes()
    at = whole.index(content(file)[1][0][0]) + 7
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
    home: Path, out: Path, tmp_path: Path, read_from: list[Path]
) -> None:
    """In a copy that is gone afterwards; the archive stays readable for the release that wrote it."""
    file = out / "birds.pq"
    run("export", "birds", tmp_path / "new.pq")
    archives.export_older(tmp_path / "new.pq", file, "0001")
    before = file.read_bytes()

    result = run("import", file, "--model", "copy")

    assert result.exit_code == 0, result.output
    assert names(home) == ["bees", "birds", "copy"]
    (path,) = read_from
    assert path != file
    assert not path.exists()
    assert file.read_bytes() == before
    assert [entry.name for entry in out.iterdir()] == ["birds.pq"]


def test_a_copy_that_finds_no_room_is_a_sentence(
    home: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which does not blame the archive; nothing is imported."""
    run("export", "birds", tmp_path / "new.pq")
    archives.export_older(tmp_path / "new.pq", out / "birds.pq", "0001")
    monkeypatch.setattr(archive, "rebuild", lambda _, fresh, *__: archives.write_without_room(fresh))

    assert "the disk is full" in sentence(run("import", out / "birds.pq", "--model", "copy"))

    assert names(home) == ["bees", "birds"]


def test_an_archive_of_this_release_is_read_where_it_is(out: Path, read_from: list[Path]) -> None:
    """It may have gigabytes: no copy is made of it."""
    run("export", "birds", out / "birds.pq")

    run("import", out / "birds.pq", "--model", "copy")

    assert read_from == [out / "birds.pq"]


# Hostile archives


def test_a_history_that_goes_round_in_circles_is_a_sentence(out: Path, other_home: Callable[[], Path]) -> None:
    """Its digest is right; nothing is made, not even a home."""
    file = out / "birds.pq"
    run("export", "birds", file)
    with archives.tampered(file) as connection:
        connection.execute("UPDATE versions SET parent = number WHERE number = 3")
    other = other_home()

    refused = sentence(run("import", file))

    assert "birds.pq cannot be imported: the parent of version 3 is not older" in refused
    assert not other.exists()


def test_a_name_in_an_archive_does_not_reach_the_terminal(home: Path, out: Path) -> None:
    """It could clear the screen, or colour what follows."""
    file = out / "birds.pq"
    run("export", "birds", file)
    with archives.tampered(file) as connection:
        connection.execute("UPDATE models SET name = char(27) || '[2J'")

    refused = sentence(run("import", file, "--model", "copy"))

    assert "the name of the model cannot be used" in refused
    assert refused.isprintable()
    assert names(home) == ["bees", "birds"]


def test_a_giant_row_is_refused_without_being_read(out: Path) -> None:
    """A value of 120 MB where a hundred bytes belong takes no memory."""
    file = out / "birds.pq"
    run("export", "birds", file)
    with archives.tampered(file) as connection:
        connection.execute("UPDATE prototypes SET vector = zeroblob(120000000) WHERE class_id = 1 AND version = 1")
    command = [sys.executable, "-c", MEASURED, "import", str(file), "--model", "copy"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    before, after = map(int, done.stdout.split())
    assert done.returncode == 2, done.stderr
    assert "it contains a value that is too large" in done.stderr
    assert after - before < 60_000  # kilobytes


MEASURED = """
import resource, sys
from protoquad import main
from learners import archive_import as archives
from core import backbones
backbones.build("resnet32")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak(), flush=True)
try:
    main.app()
finally:
    print(peak())
"""
