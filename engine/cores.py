"""How many cores this process may use, and how its threads share them."""

import contextlib
import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = _QUOTA) -> int:
    """The cores it is allowed to run on, and no more than a container's quota pays for: fewer than the machine has."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        granted, period = quota.read_text().split()
        paid = math.ceil(int(granted) / int(period))
    except (OSError, ValueError):  # no quota: the file is not there, or says "max"
        return allowed
    return max(1, min(allowed, paid))


def batch_scheduling() -> None:
    """Call before threads start, which inherit it: one that wakes does not push another off its core.

    Most wake for a moment's work in Python, and what a core has at hand of a network is gone by then: with all cores
    busy, each answer costs a twentieth more. Other processes are not affected; where the system has no such policy,
    nothing is.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
