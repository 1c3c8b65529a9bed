"""Archives on their way to and from files. Never whole in memory."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

CHUNK = 1024 * 1024  # bytes
File = str | os.PathLike[str] | IO[bytes]


class Source:
    """A file to send, from where it stands; `chunks` may be called again if the file can be read again."""

    def __init__(self, file: File) -> None:
        self._owned = isinstance(file, (str, os.PathLike))
        self._file: IO[bytes] = Path(file).open("rb") if isinstance(file, (str, os.PathLike)) else file  # noqa: SIM115
        self._start = self._file.tell() if self._file.seekable() else None
        self._begun = False

    def headers(self) -> Mapping[str, str]:
        """Its length, if it is known."""
        if self._start is None:
            return {}
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(self._start)
        return {"Content-Length": str(end - self._start)}

    def chunks(self) -> Iterator[bytes]:
        if self._start is not None:
            self._file.seek(self._start)
        elif self._begun:
            raise ValueError("the file cannot be read a second time; give a path, or a file that can be rewound")
        while chunk := self._file.read(CHUNK):
            self._begun = True
            yield chunk

    def __enter__(self) -> "Source":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            self._file.close()


class Target:
    """A file to write. A path has its file only once it is complete."""

    def __init__(self, file: File) -> None:
        self._path = Path(file) if isinstance(file, (str, os.PathLike)) else None
        self._part = self._path and self._path.with_name(f".{self._path.name}.part")
        self._file: IO[bytes] = file if self._part is None else self._part.open("wb")  # type: ignore[assignment]
        self._start = self._file.tell() if self._file.seekable() else None
        self.size = 0

    def begin(self) -> None:
        """Anew, if something was written before."""
        if not self.size:
            return
        if self._start is None:
            raise ValueError("the connection broke, and the file cannot be rewound; give a path")
        self._file.seek(self._start)
        self._file.truncate()
        self.size = 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self.size += len(chunk)

    def __enter__(self) -> "Target":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is None or self._part is None:
            return
        self._file.close()
        if error is None:
            self._part.replace(self._path)
        else:
            self._part.unlink(missing_ok=True)
