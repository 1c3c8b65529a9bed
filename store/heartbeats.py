"""The files in which workers on a home show that they make progress. Workers touch them; others read their times."""

import contextlib
import time
from pathlib import Path


def heartbeat_folder(home: Path) -> Path:
    return home / "workers"


def heartbeats(home: Path) -> dict[str, float]:
    """Seconds since the last step of each worker that runs on this home, by the name of its file."""
    ages = {}
    for file in sorted(heartbeat_folder(home).glob("*.heartbeat")):
        with contextlib.suppress(FileNotFoundError):  # its worker has just ended
            # A time in the future was written before the clock was set back: a worker that lives writes another soon.
            ages[file.stem] = abs(time.time() - file.stat().st_mtime)
    return ages
