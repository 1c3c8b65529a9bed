"""Costly images, decoded in another process, which is killed when an image takes too long or nobody waits for it.

The process is started when it is first needed and ends when it was idle for a while. A decoder that hangs, crashes or
takes all its memory does no harm to this process.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from PIL import Image

from core.errors import BrokenImage, ImageError, ImageTooCostly
from engine.decoder_main import REQUEST
from engine.single_flight import Busy

SECONDS = 10  # of CPU time; the heaviest honest image takes about two
STORED_SECONDS = 120  # for images accepted before there was a limit: a session must not fail on them for ever
_WALL = 4  # times as many seconds by the clock, because other processes have priority
_OWN_MEMORY = 200_000_000  # bytes of address space that the process takes without any image
_BYTES_PER_PIXEL = 12  # enough for every format but WebP, for which 50 megapixels become 37
_POLL_SECONDS = 0.05  # how often to look whether anybody still waits
_PIPE_BYTES = 1 << 20
_LONGEST_LINE = 1 << 16

_ERRORS = {kind.__name__: kind for kind in ImageError.__subclasses__()}
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # more threads would take memory for nothing


class Abandoned(Exception):
    """Nobody waits for the image any more."""


class DecoderProcess:
    """Decodes one image at a time. All methods may be called from any thread."""

    def __init__(self, idle_seconds: float = 60.0) -> None:
        self._idle_seconds = idle_seconds
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def decode(
        self,
        data: bytes,
        *,
        short_side: int,
        max_pixels: int,
        seconds: int = SECONDS,
        abandoned: Callable[[], bool] = lambda: False,
    ) -> Image.Image:
        """As `core.pixels.decode`, within `seconds` of CPU time. Raises Abandoned as soon as `abandoned` says so."""
        memory = _OWN_MEMORY + 2 * len(data) + _BYTES_PER_PIXEL * max_pixels
        head = REQUEST.pack(len(data), short_side, max_pixels, memory, seconds)
        with self._turn:
            for _ in range(2):  # an idle process may end just now
                answer = self._exchange([head, data], seconds, abandoned)
                if answer is not None:
                    return _image(answer)
                code = self._end()
                if code == -signal.SIGXCPU:
                    raise _too_slow(seconds)
                if code != 0:
                    break
            raise BrokenImage(f"the image crashes its decoder (exit code {code}); save it again with another program")

    def close(self) -> None:
        """Kill the process, if there is one."""
        if (child := self._child) is not None:
            child.kill()
        with self._turn:
            self._end()

    def _exchange(self, parts: list[bytes], seconds: int, abandoned: Callable[[], bool]) -> bytes | None:
        """Send a request. Returns its answer, or None if the process ended before it had answered."""
        try:
            child = self._started()
        except OSError as error:  # the system has no more descriptors or processes
            raise Busy(f"no process can be started to decode the image ({error.strerror})") from error
        try:
            return _exchanged(child, parts, time.monotonic() + _WALL * seconds, abandoned)
        except TimeoutError:
            self._kill()
            raise _too_slow(seconds) from None
        except BaseException:
            self._kill()  # its answer would be taken for that to the next request
            raise

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._child is not None and self._child.poll() is not None:
            self._end()  # it ended while it was idle
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "engine.decoder_main", str(self._idle_seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pipesize=_PIPE_BYTES,
                env={**os.environ, **_ENVIRONMENT},
            )
        return self._child

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._end()

    def _end(self) -> int:
        """Wait for a process that is ending. Returns its exit code."""
        child, self._child = self._child, None
        if child is None:
            return 0
        with child:  # waits, and closes its pipes
            pass
        return child.returncode


def _exchanged(
    child: "subprocess.Popen[bytes]", parts: list[bytes], deadline: float, abandoned: Callable[[], bool]
) -> bytes | None:
    assert child.stdin is not None
    assert child.stdout is not None
    stdin, stdout = child.stdin.fileno(), child.stdout.fileno()
    os.set_blocking(stdin, False)
    unsent = [memoryview(part) for part in parts]
    answer = bytearray()
    ready = select.poll()  # select.select takes no descriptor above 1023
    ready.register(stdout, select.POLLIN)
    ready.register(stdin, select.POLLOUT)
    while not _is_complete(answer):
        if abandoned():
            raise Abandoned
        if time.monotonic() > deadline:
            raise TimeoutError
        found = dict(ready.poll(1000 * _POLL_SECONDS))
        if stdin in found:
            _send(stdin, unsent)
            if not unsent:
                ready.unregister(stdin)
        if stdout in found:
            chunk = os.read(stdout, _PIPE_BYTES)
            if not chunk:
                return None
            answer += chunk
    return bytes(answer)


def _send(stdin: int, unsent: list[memoryview]) -> None:
    try:
        sent = os.write(stdin, unsent[0][:_PIPE_BYTES])
    except BrokenPipeError:  # the process has ended; reading will show it
        unsent.clear()
        return
    unsent[0] = unsent[0][sent:]
    if not unsent[0]:
        del unsent[0]


def _is_complete(answer: bytearray) -> bool:
    end = answer.find(b"\n", 0, _LONGEST_LINE)
    if end < 0:
        return len(answer) >= _LONGEST_LINE
    width, height = map(int, json.loads(answer[:end]).get("size", (0, 0)))
    return len(answer) >= end + 1 + 3 * width * height


def _image(answer: bytes) -> Image.Image:
    line, _, pixels = answer.partition(b"\n")
    header = json.loads(line)
    if "error" in header:
        raise _ERRORS.get(header["error"], BrokenImage)(header["message"])
    return Image.frombytes("RGB", tuple(header["size"]), pixels)


def _too_slow(seconds: int) -> ImageTooCostly:
    return ImageTooCostly(
        f"the image takes more than {seconds} seconds to decode, which is the limit; "
        "save it as a baseline JPEG, or smaller"
    )
