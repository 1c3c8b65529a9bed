"""How many connections there may be, and how long each may wait for its client."""

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

ACCEPTED_PER_TURN = 64  # connections accepted in each turn of the event loop
RESERVED = 16  # connections beyond the limit, for health checks
# Descriptors for listening, for two turns of connections that come while others close, and for the database and files.
# Without a spare one libuv drops every connection that waits to be accepted.
SPARE_FILES = 4 * ACCEPTED_PER_TURN
SECONDS_TO_CLOSE = 2.0  # for a refused client to read its answer

Waiting = Literal["head", "body", "reader", "close"]
"""What a connection waits for its client to do: send a request, send its body, read the answer, close."""

_log = structlog.get_logger("protoquad.connections")


@dataclass(frozen=True)
class ConnectionLimits:
    connections: int
    head_seconds: float
    body_seconds: float
    reader_seconds: float = 30.0

    def seconds(self, waiting: Waiting) -> float:
        return {
            "head": self.head_seconds,
            "body": self.body_seconds + SECONDS_TO_CLOSE,  # the application itself refuses a slow body, with an answer
            "reader": self.reader_seconds,
            "close": self.reader_seconds,
        }[waiting]


def allowed_connections(wanted: int) -> int:
    """The wanted number, or fewer if this process may not open enough files; its soft limit is raised first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED + SPARE_FILES + len(list(Path("/dev/fd").iterdir()))
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    allowed = max(1, wanted - (needed - soft))
    _log.warning("connections limited by open files", connections=allowed, wanted=wanted, open_files=soft)
    return allowed
