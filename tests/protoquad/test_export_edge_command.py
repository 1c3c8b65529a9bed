"""`protoquad export-edge`, as somebody types it."""

import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from learners import edge_export
from migrations import schema
from protoquad import export_edge_command
from store import archive, catalogue
from store.database import Database
from tests import archives
from tests.painted import picture

app = typer.Typer()
app.command()(export_edge_command.export_edge)
pytestmark = pytest.mark.usefixtures("unchanged_process")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a model that has a history, and one that was never taught."""
    path = tmp_path_factory.mktemp("filled") / "protoquad.db"
    with closing(Database(f"sqlite:///{path}")) as database:
        schema.upgrade(database)
        archives.fill(database, "birds")
        with database.write() as db:
            catalogue.create(db, "empty", archives.BACKBONE, 0.1)
    archive.settle(path)
    return path


@pytest.fixture(autouse=True)
def out(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to write to, which is the current one; the settings name a home with two models."""
    home, folder = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    folder.mkdir()
    shutil.copyfile(filled, home / "protoquad.db")
    for name, value in {"HOME": str(home), "ENGINE": "torch", "BACKBONE": archives.BACKBONE}.items():
        monkeypatch.setenv(f"PROTOQUAD_{name}", value)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def words(result: Result) -> str:
    return " ".join(result.output.split())


def test_a_graph_that_differs_is_not_written(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 and what was measured; a file of yesterday stays, and not even a temporary one is left.

    It would be written otherwise, though a base session has trained this model's whole network.
    """
    monkeypatch.setattr(edge_export, "TOLERANCE", -1.0)  # no distance is near enough
    (out / "birds.onnx").write_bytes(b"of yesterday")
    given = [out.parent / f"{number}.png" for number in range(3)]
    for number, path in enumerate(given):
        path.write_bytes(picture("wren", 10 + number))

    result = run("birds", "--out", "birds.onnx", "--force", "--check", *given)

    assert result.exit_code == 1, result.output
    measured = "checked with 6 images: top-1 the same for 6, unknown for 6; distances differ by at most 0.0000"
    assert measured in words(result)
    assert "stored image 1 (distances differ by 0.0000" in words(result)
    assert "the graph does not answer as the service does" in words(result)
    assert names(out) == ["birds.onnx"]
    assert (out / "birds.onnx").read_bytes() == b"of yesterday"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["empty"], "version 0 of model 'empty' knows no class; teach it one first"),
        (["nobody"], "there is no model named 'nobody'"),
        (["birds", "--version", "77"], "version 77 does not exist; the newest is 6"),
        (["birds", "--version", "5"], "version 5 was rejected by the gate"),
        (["birds", "--out", "there/birds.onnx"], "the folder there does not exist"),
        (["birds", "--out", "taken.onnx"], "taken.onnx exists already"),
        (["birds", "--format", "openvino", "--out", "birds.onnx"], "it must end in .xml"),
        (["birds", "--check", "missing.jpg"], "missing.jpg: No such file or directory"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(out: Path, arguments: list[str], why: str) -> None:
    """Exit code 2, and nothing is written."""
    (out / "taken.onnx").touch()

    result = run(*arguments)

    assert result.exit_code == 2
    assert why in words(result)
    assert names(out) == ["taken.onnx"]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs them: they are an extra."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    result = run("birds")

    assert result.exit_code == 2
    assert "needs the package onnxruntime; install it with: pip install 'protoquad[edge]'" in words(result)
