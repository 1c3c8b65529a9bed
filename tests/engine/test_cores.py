"""Threads are sized by what the process may use, not by what the machine has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cores import batch_scheduling, usable_cores

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
def test_a_containers_quota_counts(tmp_path: Path, written: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(written)
    assert usable_cores(tmp_path / "cpu.max") == cores


def test_without_a_quota_it_is_what_the_process_is_pinned_to(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "absent") == ALLOWED


POLICY_OF_A_LATER_THREAD = """
import os, threading
from engine.cores import batch_scheduling

batch_scheduling()
thread = threading.Thread(target=lambda: print(os.sched_getscheduler(threading.get_native_id()) == os.SCHED_BATCH))
thread.start()
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no such policy")
def test_threads_started_later_do_not_push_others_off_their_core() -> None:
    """In a process of its own: the policy stays."""
    answer = subprocess.run(
        [sys.executable, "-c", POLICY_OF_A_LATER_THREAD], capture_output=True, text=True, check=True
    )

    assert answer.stdout == "True\n"


def test_a_system_that_refuses_the_policy_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may forbid it; the service starts all the same."""
    asked = []

    def refuse(*given: object) -> None:
        asked.append(given)
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    monkeypatch.setattr(os, "SCHED_BATCH", 3, raising=False)

    batch_scheduling()

    assert asked
