"""Every example of the page about the command line is run, and prints what the page shows."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from protoquad.main import app
from store.database import Database
from tests.client.command_line import CLIENT, SECONDS, CommandLine, run_pq
from tests.docs.pages import REPOSITORY, blocks, shell_lines, text_of
from tests.service.conftest import Service, running_service

PAGE = text_of("docs/cli.md")
SAMPLES = REPOSITORY / "console" / "static" / "samples"
ENDLESS = "pq watch"  # tested by itself: it does not end
UNKNOWN = "new-umbrella.jpg: unknown (nearest: fish)"  # the small network takes it for a house
SHELL = re.compile(r"[|<>]")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, _migrated_file: Path) -> Iterator[Service]:
    """With a small network, which knows these drawings too."""
    home = tmp_path_factory.mktemp("cli")
    home.chmod(0o700)
    shutil.copyfile(_migrated_file, home / "protoquad.db")
    url = f"sqlite:///{home / 'protoquad.db'}"
    with closing(Database(url)) as database, running_service(database, home) as started:
        yield started


@pytest.fixture(scope="module")
def printed(service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each line of the page prints, one after another, in the folder that the page names."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "pq"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m protoquad_client.commands "$@"\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as environment:
        environment.chdir(SAMPLES)
        environment.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        environment.setenv("PYTHONPATH", os.pathsep.join([str(CLIENT), os.environ.get("PYTHONPATH", "")]))
        environment.setenv("PROTOQUAD_URL", service.url)
        environment.setenv("PROTOQUAD_HOME", str(service.settings.home))
        environment.setenv("OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY", "PASSIVE"))
        with structlog.testing.capture_logs():  # the service runs in this process
            return {line: _printed(line, service) for line in shell_lines(PAGE) if line != ENDLESS}


def _printed(line: str, service: Service) -> str:
    program, *arguments = line.split()
    if SHELL.search(line) or program not in ("pq", "protoquad"):
        done = subprocess.run(["bash", "-euc", line], capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout
    if program == "protoquad":
        result = CliRunner().invoke(app, arguments)
    elif "--wait" in arguments:
        with CommandLine(service, service.learner()).worker():
            result = run_pq(*arguments, PROTOQUAD_URL=service.url)
    else:
        result = run_pq(*arguments, PROTOQUAD_URL=service.url)
    assert result.exit_code == 0, (line, result.output)
    return result.stdout


def test_every_line_works(printed: dict[str, str]) -> None:
    """And all of them but those that write a file, or find nothing, print something."""
    silent = {line for line, text in printed.items() if not text}

    assert ENDLESS in shell_lines(PAGE)
    assert silent == {line for line in printed if ">" in line or "zipfile" in line or line == "pq inbox"}


def test_the_page_shows_what_is_printed(printed: dict[str, str]) -> None:
    """But for numbers, which differ from run to run."""
    shown = {_plain(line) for block in blocks(PAGE, "text") for line in block.splitlines()}
    found = {_plain(line) for text in printed.values() for line in text.splitlines()}

    assert len(shown) >= 5
    assert shown - found == {UNKNOWN}


def _plain(line: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "#", line)
