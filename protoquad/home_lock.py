"""The lock that a service holds on its home folder for as long as it runs."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from protoquad.home_folder import make_home
from protoquad.plain_errors import Refused
from store.database import OWNER_ONLY_FILE


@contextlib.contextmanager
def only_service(home: Path) -> Iterator[None]:
    """Hold the home folder: a second service on the same one would start a second worker and share nothing."""
    make_home(home)
    descriptor = os.open(home / "serve.lock", os.O_RDWR | os.O_CREAT, OWNER_ONLY_FILE)
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"a service runs on {home} already{_by_whom(file)}; stop it, or set PROTOQUAD_HOME") from None
        os.ftruncate(file.fileno(), 0)
        with contextlib.suppress(OSError):  # a full disk: the lock holds, only its holder's number is not known
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


def _by_whom(file: TextIO) -> str:
    file.seek(0)
    holder = file.read().strip()
    return f" (process {holder})" if holder else ""
