"""The process that decodes costly images, one at a time, as they come on its standard input.

It limits its own memory and CPU time before each image, so that the kernel stops it whatever the bytes do to a decoder.
It ends when nothing has come for a while, or when the process that started it is gone. It starts fast: no torch here.
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

REQUEST = struct.Struct("<QIQQI")  # bytes of the image, short side, max pixels, bytes of memory, seconds of CPU time
NICENESS = 10  # predictions have priority


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the process that started this one
    os.nice(NICENESS)
    _limit(resource.RLIMIT_CORE, 0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
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


def _limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    with contextlib.suppress(ValueError, OSError):  # the system has no such limit, or a lower one already
        resource.setrlimit(kind, (limit, hard))


def _answer(data: bytes, short_side: int, max_pixels: int) -> tuple[bytes, bytes]:
    """A line of JSON that describes the image or the error, and the pixels."""
    try:
        image = decode(data, short_side=short_side, max_pixels=max_pixels)
    except ImageError as error:
        return _line({"error": type(error).__name__, "message": str(error)}), b""
    return _line({"size": image.size}), image.tobytes()


def _line(content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"


if __name__ == "__main__":
    main()
