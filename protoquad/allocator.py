"""How the C library hands out memory, which Python, torch and OpenVINO all take from it."""

import ctypes
import sys

_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h
_ARENAS = 2


def limit_arenas() -> None:
    """Call before threads start: glibc would give nearly every one an arena of its own, which keeps what it had.

    Networks are compiled and dropped by whichever thread a request runs in, and a process would grow with each version
    until all its threads have had one.
    """
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # which other C libraries do not have
        if set_option is not None:
            set_option(_ARENA_MAX, _ARENAS)
