"""Services for tests, started as a user starts them; and commands within the process, where that is enough."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from click.testing import Result
from typer.testing import CliRunner

from protoquad.main import app
from tests.processes import Running, Service


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services on one home folder; whatever still runs at the end is killed."""
    running: list[Service] = []

    def started(**environment: str) -> Service:
        running.append(Service({"PROTOQUAD_HOME": str(tmp_path / "home"), **environment}))
        return running[-1]

    yield started
    for service in running:
        service.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Runs commands on the same home folder that are expected to end by themselves."""
    running: list[Running] = []

    def ran(*arguments: str, **environment: str) -> Running:
        running.append(Running(list(arguments), {"PROTOQUAD_HOME": str(tmp_path / "home"), **environment}))
        running[-1].ended()
        return running[-1]

    yield ran
    for command in running:
        command.close()


@pytest.fixture
def unchanged_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes back what commands set for the whole process: its umask, OMP_WAIT_POLICY and its logs."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    logs, root = structlog.get_config(), logging.getLogger()
    handlers, level, umask = root.handlers, root.level, os.umask(0o022)
    yield
    os.umask(umask)
    root.handlers, root.level = handlers, level
    structlog.configure(**logs)


@pytest.fixture
def invoke(unchanged_process: None) -> Callable[..., Result]:
    """Runs `protoquad ...` without a process of its own: for commands that end by themselves even if they are wrong."""
    del unchanged_process
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])
