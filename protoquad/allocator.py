"""Settings of the C library's allocator, which Python, torch and OpenVINO all use."""

import ctypes
import sys

_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h
_ARENAS = 2


def limit_arenas() -> None:
    """Make all threads share two arenas. Call it before threads start.

    glibc gives nearly every thread an arena of its own, which keeps the memory that was freed in it. Each thread that
    compiles the network of a version would make the process grow: by 9 % over 125 versions, instead of 1 %.
    """
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries do not have it
        if set_option is not None:
            set_option(_ARENA_MAX, _ARENAS)
