"""Threads are sized by what the process may use, not by what the machine has."""

import os
from pathlib import Path

import pytest

from engine.cores import usable_cores

ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("written", "cores"),
    [
        ("max 100000\n", ALLOWED),
        ("100000 100000\n", 1),
        ("50000 100000\n", 1),
        ("110000 100000\n", min(2, ALLOWED)),
        ("9900000 100000\n", ALLOWED),
        ("nonsense", ALLOWED),
    ],
)
def test_the_quota_of_a_container_counts(tmp_path: Path, written: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(written)
    assert usable_cores(tmp_path / "cpu.max") == cores


def test_without_a_quota_it_is_what_the_process_is_pinned_to(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "absent") == ALLOWED
