"""The bytes of one request's images as they arrive: in memory up to a size, beyond it in an unnamed file.

So a large body that arrives slowly, or waits for its turn, takes no memory. The file is closed with the last blob.
"""

import os
import tempfile
import weakref

from anyio.to_thread import run_sync

from service.problems import RETRY_SECONDS, Problem

IN_MEMORY = 8 * 1024 * 1024  # bytes of one request: as much as a few photographs


class _File:
    """An unnamed temporary file, closed when nobody refers to it any more."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._descriptor = os.dup(file.fileno())
        self._end = 0
        weakref.finalize(self, os.close, self._descriptor)

    def append(self, data: bytes) -> tuple[int, int]:
        """Returns its place: offset and length."""
        start, view = self._end, memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, self._end)
            self._end, view = self._end + written, view[written:]
        return start, len(data)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)


class Blob:
    """The bytes of one image; `read` may be called from any thread."""

    def __init__(self) -> None:
        self._file: _File | None = None
        self._spans: list[tuple[int, int]] = []  # in the file
        self._pieces: list[bytes] = []  # after those
        self.in_memory = 0

    def write(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.in_memory += len(piece)

    def read(self) -> bytes:
        if self._file is None:
            return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        return b"".join([*(self._file.read(*span) for span in self._spans), *self._pieces])

    def move_to(self, file: _File) -> None:
        if self._pieces:
            self._spans.append(file.append(b"".join(self._pieces)))
            self._file, self._pieces, self.in_memory = file, [], 0


class Spool:
    def __init__(self) -> None:
        self._file: _File | None = None
        self._blobs: list[Blob] = []

    def blob(self) -> Blob:
        self._blobs.append(Blob())
        return self._blobs[-1]

    @property
    def in_memory(self) -> int:
        return sum(blob.in_memory for blob in self._blobs)

    async def settle(self) -> None:
        """Move the blobs to the file if they take too much memory; call it between two pieces of the body."""
        if self.in_memory > IN_MEMORY:
            await run_sync(self._move_to_file)

    def _move_to_file(self) -> None:
        try:
            self._file = self._file or _File()
            for blob in self._blobs:
                blob.move_to(self._file)
        except OSError as error:
            detail = f"the body cannot be stored on disk ({error.strerror}); try again later, or send smaller requests"
            headers = {"Retry-After": str(RETRY_SECONDS)}
            raise Problem(503, "No room for the body", detail, slug="overloaded", headers=headers) from error
