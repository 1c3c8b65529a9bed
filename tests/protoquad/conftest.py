"""Services for tests, started as a user starts them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
