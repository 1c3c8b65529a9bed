"""How many cores this process may use: fewer than the machine has, where a container or an operator says so."""

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = _QUOTA) -> int:
    """The cores it is allowed to run on, and no more than a container's quota pays for."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        granted, period = quota.read_text().split()
        paid = math.ceil(int(granted) / int(period))
    except (OSError, ValueError):  # no quota: the file is not there, or says "max"
        return allowed
    return max(1, min(allowed, paid))
