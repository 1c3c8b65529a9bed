"""How many cores this process may use."""

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = _QUOTA) -> int:
    """The cores that the process is allowed to run on, at most as many as the quota of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        granted, period = quota.read_text().split()
        limit = math.ceil(int(granted) / int(period))
    except (OSError, ValueError):  # no quota: the file is not there, or says "max"
        return allowed
    return max(1, min(allowed, limit))
