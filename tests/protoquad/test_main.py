"""The command line itself: its own commands, and those that other distributions add."""

import errno
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protoquad.main import COMMANDS, app
from protoquad.plain_errors import plain_errors

METADATA = "Metadata-Version: 2.1\nName: protoquad-extra\nVersion: 1\n"


pytestmark = pytest.mark.usefixtures("unchanged_process")


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution that adds the command `extra`, and tries to replace `keys`."""
    (tmp_path / "extra_commands.py").write_text(
        "import typer\napp = typer.Typer()\n\n\n"
        "@app.command()\ndef greet() -> None:\n    typer.echo('hello')\n\n\n"
        "@app.command()\ndef leave() -> None:\n    typer.echo('goodbye')\n"
    )
    described = tmp_path / "protoquad_extra-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(METADATA)
    points = "extra = extra_commands:app\nkeys = extra_commands:app\n"
    (described / "entry_points.txt").write_text(f"[protoquad.commands]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("extra")
def test_a_command_of_an_installed_distribution_is_listed_and_runs() -> None:
    """The command line imports nothing of the distribution until the command is used."""
    listed = CliRunner().invoke(app, ["--help"])
    result = CliRunner().invoke(app, ["extra", "greet"])

    assert "extra" in listed.output
    assert result.output == "hello\n"


@pytest.mark.usefixtures("extra")
def test_a_distribution_cannot_replace_a_command() -> None:
    """`keys` stays what it is, and is listed once."""
    result = CliRunner().invoke(app, ["keys", "greet"])

    assert result.exit_code == 2
    assert CliRunner().invoke(app, ["--help"]).output.count("│ keys ") == 1


def test_a_reader_that_goes_away_is_no_error() -> None:
    """As in `protoquad doctor | head -1`: it is left to typer, which ends without a word."""
    with pytest.raises(BrokenPipeError), plain_errors():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_an_unknown_command_is_an_error() -> None:
    """With the name that was typed."""
    result = CliRunner().invoke(app, ["extra"])

    assert result.exit_code == 2
    assert "extra" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    """So the module that the table names exists."""
    result = CliRunner().invoke(app, [name, "--help"])

    assert result.exit_code == 0, result.output
