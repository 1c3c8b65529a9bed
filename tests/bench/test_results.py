"""What a result file contains about its run."""

import sys

import pytest

from bench import results


def test_the_command_names_no_path_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader can repeat it with a folder of their own."""
    arguments = ["--data", "/data/birds/cub200", "--set", "cache=/home/anna/cache", "--set", "base.copies=5"]
    monkeypatch.setattr(sys, "argv", ["/opt/protoquad", "bench", "fscil", *arguments])

    expected = "protoquad bench fscil --data cub200 --set cache=cache --set base.copies=5"
    assert results.command() == expected


def test_the_machine_is_described() -> None:
    """Cores are those the process may use."""
    machine = results.machine()

    assert machine["cores"] >= 1
    assert machine["cpu"]
    assert machine["torch"]
