"""Bodies that are larger than memory should hold: written to a disk as they arrive, one at a time."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from anyio.to_thread import run_sync
from fastapi import Request

from engine.single_flight import Busy
from service.app_context import AppContext
from service.problems import Problem
from store.outages import is_full

CHUNK = 1024 * 1024  # bytes
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # the last: a file may grow no larger


@contextmanager
def alone(context: AppContext) -> Iterator[None]:
    """On the event loop. Raises Busy while another archive or zip is written or read."""
    if context.archives.full:
        raise Busy("another archive is being exported or imported, or another zip arrives")
    with context.archives.take():
        try:
            yield
        except (OSError, sqlite3.Error) as error:  # an archive is an SQLite file
            if not is_full(error) and getattr(error, "errno", None) not in NO_ROOM:
                raise
            raise _disk_full() from error


async def spool(request: Request, file: BinaryIO) -> None:
    """Write the body to the file as it arrives; the limits of the request count it."""
    waiting = bytearray()
    async for chunk in request.stream():
        waiting += chunk
        if len(waiting) >= CHUNK:
            await run_sync(file.write, bytes(waiting))
            waiting.clear()
    await run_sync(file.write, bytes(waiting))


def _disk_full() -> Problem:
    detail = "the disk of the home or scratch folder is full, so nothing was changed; make room and try again"
    return Problem(507, "The disk is full", detail, slug="insufficient-storage")
