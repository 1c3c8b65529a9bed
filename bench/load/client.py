"""A client that costs next to nothing: it shares the cores with the server it measures.

Requests are made ready beforehand, connections are kept, and of an answer only what is checked is read.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BOUNDARY = b"protoquad-load"


@dataclass(frozen=True)
class Question:
    """A picture on its way to a server, and the class that it should be given."""

    message: bytes  # the whole request
    expected: int


Read = Callable[[dict[str, Any]], int]  # the class in an answer


def prediction_of_ours(answer: dict[str, Any]) -> int:
    return int(answer["predictions"][0]["top"][0]["class_id"])


def prediction_of_a_peer(answer: dict[str, Any]) -> int:
    return int(answer["class_id"])


def question(path: str, field: str, picture: bytes, expected: int) -> Question:
    """A multipart form with one file, as curl would send it."""
    body = b"".join(
        [
            b"--" + BOUNDARY + b"\r\n",
            f'Content-Disposition: form-data; name="{field}"; filename="picture.jpg"\r\n'.encode(),
            b"Content-Type: image/jpeg\r\n\r\n",
            picture,
            b"\r\n--" + BOUNDARY + b"--\r\n",
        ]
    )
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY.decode()}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return Question(head.encode() + body, expected)


class WrongAnswer(Exception):
    """Not 200, or another class than expected."""


class Connection:
    """One connection that is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, asked: Question, read: Read) -> None:
        self._writer.write(asked.message)
        await self._writer.drain()
        head = await self._reader.readuntil(b"\r\n\r\n")
        body = await self._reader.readexactly(_length(head))
        if not head.startswith(b"HTTP/1.1 200"):
            status = head.partition(b"\r\n")[0].decode()
            raise WrongAnswer(f"{status}: {body[:200].decode(errors='replace')}")
        found = read(json.loads(body))
        if found != asked.expected:
            raise WrongAnswer(f"class {found}, not {asked.expected}")

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":", 1)[1])
    raise WrongAnswer("the answer does not say how long it is")
