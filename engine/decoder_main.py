"""The process that decodes costly images, one at a time as its standard input brings them.

Bounds its own memory and computing time before each, so that the kernel stops it whatever the bytes do to a decoder.
Ends when nothing has come for a while, or when whoever started it is gone. Imports no torch: it starts at once.
"""

import contextlib
import json
import math
import os
import resource
import select
import signal
import struct
import sys
import time

from core.errors import ImageError
from core.pixels import decode

REQUEST = struct.Struct("<QIQQI")  # bytes of the image, short side, most pixels, memory, seconds of computing
NICENESS = 10  # predictions come first


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for whoever started this
    os.nice(NICENESS)
    _limit(resource.RLIMIT_CORE, 0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer
    requests = sys.stdin.buffer
    idle_seconds = float(sys.argv[1])
    while select.select([requests], [], [], idle_seconds)[0]:
        head = requests.read(REQUEST.size)
        if len(head) < REQUEST.size:
            return
        length, short_side, max_pixels, memory, seconds = REQUEST.unpack(head)
        _limit(resource.RLIMIT_AS, memory)
        _limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + seconds)
        answers.writelines(_answer(requests.read(length), short_side, max_pixels))
        answers.flush()


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    with contextlib.suppress(ValueError, OSError):  # where the system has no such limit, or a lower one already
        resource.setrlimit(kind, (most, hard))


def _answer(data: bytes, short_side: int, max_pixels: int) -> tuple[bytes, bytes]:
    """A line that says what follows, and the pixels."""
    try:
        image = decode(data, short_side=short_side, max_pixels=max_pixels)
    except ImageError as error:
        return _line({"error": type(error).__name__, "message": str(error)}), b""
    return _line({"size": image.size}), image.tobytes()


def _line(content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"


if __name__ == "__main__":
    main()
