"""What a result file says about its run."""

import sys

import pytest

from bench import results


def test_the_command_names_no_path_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader can repeat it with a folder of their own."""
    monkeypatch.setattr(sys, "argv", ["/opt/protoquad", "bench", "fscil", "--data", "/data/birds/cub200", "-B", "5"])

    assert results.command() == "protoquad bench fscil --data cub200 -B 5"


def test_the_machine_is_described() -> None:
    """Cores are those the process may use."""
    machine = results.machine()

    assert machine["cores"] >= 1
    assert machine["cpu"]
    assert machine["torch"]
