"""Costly images decoded in a process of their own, which is killed when one takes too long or nobody waits for it.

The process is started when it is first needed and ends by itself when it was idle for a while. Whatever a decoder does
there, it cannot take the memory, the threads or the life of this process.
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

SECONDS = 10  # of computing; the heaviest honest image takes about two
STORED_SECONDS = 120  # for what was accepted before there was a bound: a session must not fail on it for ever
_WALL = 4  # times as long by the clock, as other processes come first
_OWN_MEMORY = 200_000_000  # addresses that the process takes without any image
_BYTES_PER_PIXEL = 12  # enough for every format but WebP, of which 37 megapixels fit in the place of 50
_LOOK_SECONDS = 0.05  # how often to ask whether anybody still waits
_PIPE_BYTES = 1 << 20
_LONGEST_LINE = 1 << 16

_ERRORS = {kind.__name__: kind for kind in ImageError.__subclasses__()}
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each thread would take memory, and is not used


class Abandoned(Exception):
    """Nobody waits for the image any more."""


class DecoderProcess:
    """One image at a time; all methods may be called from any thread."""

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
        """As `core.pixels.decode`, within so many seconds of computing; Abandoned is raised when told to stop."""
        memory = _OWN_MEMORY + 2 * len(data) + _BYTES_PER_PIXEL * max_pixels
        head = REQUEST.pack(len(data), short_side, max_pixels, memory, seconds)
        with self._turn:
            for _ in range(2):  # a process that ends because it was idle may do so just now
                answer = self._exchange([head, data], seconds, abandoned)
                if answer is not None:
                    return _image(answer)
                code = self._end()
                if code == -signal.SIGXCPU:
                    raise _too_slow(seconds)
                if code != 0:
                    break
            raise BrokenImage(f"the picture makes its decoder crash (with {code}); save it again with another program")

    def close(self) -> None:
        """Kill the process, if there is one, and whatever it is at."""
        if (child := self._child) is not None:
            child.kill()
        with self._turn:
            self._end()

    def _exchange(self, parts: list[bytes], seconds: int, abandoned: Callable[[], bool]) -> bytes | None:
        """Send a request; its answer, or None where the process ended before it had given one."""
        try:
            child = self._started()
        except OSError as error:  # no descriptor or process is left for it
            raise Busy(f"no process can be started to decode the image ({error.strerror})") from error
        try:
            return _exchanged(child, parts, time.monotonic() + _WALL * seconds, abandoned)
        except TimeoutError:
            self._kill()
            raise _too_slow(seconds) from None
        except BaseException:
            self._kill()  # it would answer what nobody asks any more
            raise

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._child is not None and self._child.poll() is not None:
            self._end()  # while it was idle, for no fault of the next image
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
        """Forget a process that is ending; how it ended."""
        child, self._child = self._child, None
        if child is None:
            return 0
        with child:  # waits for it, and closes its pipes
            pass
        return child.returncode


def _exchanged(
    child: "subprocess.Popen[bytes]", parts: list[bytes], deadline: float, abandoned: Callable[[], bool]
) -> bytes | None:
    assert child.stdin is not None
    assert child.stdout is not None
    to, back = child.stdin.fileno(), child.stdout.fileno()
    os.set_blocking(to, False)
    unsent = [memoryview(part) for part in parts]
    answer = bytearray()
    ready = select.poll()  # not select.select, which knows no descriptor above 1023
    ready.register(back, select.POLLIN)
    ready.register(to, select.POLLOUT)
    while not _is_complete(answer):
        if abandoned():
            raise Abandoned
        if time.monotonic() > deadline:
            raise TimeoutError
        found = dict(ready.poll(1000 * _LOOK_SECONDS))
        if to in found:
            _send(to, unsent)
            if not unsent:
                ready.unregister(to)
        if back in found:
            some = os.read(back, _PIPE_BYTES)
            if not some:
                return None
            answer += some
    return bytes(answer)


def _send(to: int, unsent: list[memoryview]) -> None:
    try:
        sent = os.write(to, unsent[0][:_PIPE_BYTES])
    except BrokenPipeError:  # it ended; reading will show it
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
    said = json.loads(line)
    if "error" in said:
        raise _ERRORS.get(said["error"], BrokenImage)(said["message"])
    return Image.frombytes("RGB", tuple(said["size"]), pixels)


def _too_slow(seconds: int) -> ImageTooCostly:
    return ImageTooCostly(
        f"the picture takes more than {seconds} seconds to decode, which is the most that is allowed; "
        "save it as a baseline JPEG, or smaller"
    )
