"""Waiting for something to come true, with a bound."""

import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0  # on a busy machine; nothing waits that long unless something is wrong


def until(true: Callable[[], Any], what: str) -> None:
    """Look again and again, for so long."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"it did not come to pass that {what}"
        time.sleep(0.01)
