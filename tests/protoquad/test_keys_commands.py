"""`protoquad keys …`: the first key of a deployment that nobody sits beside, and keys made in the wrong folder."""

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from migrations import schema
from protoquad.keys_commands import app
from store.database import Database

KEY = f"pq_0123abcd_{'5e' * 32}"


@pytest.fixture(autouse=True)
def _embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path))
    monkeypatch.delenv("PROTOQUAD_DATABASE_URL", raising=False)
    monkeypatch.setenv("PROTOQUAD_KEY", KEY)
    with closing(Database(f"sqlite:///{tmp_path / 'protoquad.db'}")) as database:
        schema.upgrade(database)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_key_in_the_environment_is_stored_once_and_not_shown() -> None:
    """However often a deployment starts."""
    first, second = (run("ensure", "first", "--scope", "admin") for _ in range(2))

    assert first.exit_code == second.exit_code == 0
    assert first.output == second.output == "0123abcd (first) is valid\n"
    assert run("list").output.count("0123abcd") == 1


def test_a_revoked_key_does_not_hold_up_a_start() -> None:
    """It opens nothing, and the deployment goes on with the keys that were made since."""
    run("ensure", "first")
    run("revoke", "0123abcd")
    again = run("ensure", "first")

    assert again.exit_code == 0
    assert again.output == "0123abcd (first) was revoked and stays so\n"


@pytest.mark.parametrize(("key", "told"), [("", "PROTOQUAD_KEY is not set"), ("hunter2", "64 random hexadecimal")])
def test_without_a_good_key_it_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, key: str, told: str) -> None:
    """And never repeats the secret."""
    monkeypatch.setenv("PROTOQUAD_KEY", key)
    refused = run("ensure", "first")

    assert refused.exit_code == 2
    assert told in refused.output
    assert "hunter2" not in refused.output


@pytest.mark.parametrize("command", [("create",), ("ensure",), ("list",), ("revoke", "0123abcd")])
def test_in_a_folder_without_a_database_none_is_made(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in a new database opens nothing; the sentence names the folder and both ways on."""
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path / "elsewhere"))

    refused = run(*command)

    assert refused.exit_code == 2
    told = refused.output.replace("\n", " ")
    assert str(tmp_path / "elsewhere" / "protoquad.db") in told
    assert "PROTOQUAD_HOME" in told
    assert "protoquad migrate" in told
    assert not (tmp_path / "elsewhere").exists()
