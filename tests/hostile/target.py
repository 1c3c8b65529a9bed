"""What an attacker knows of the service, and the few ways in which it speaks to it: bytes on sockets, as it likes."""

import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PIECE = 256 * 1024


@dataclass
class Target:
    host: str
    port: int
    key: str = ""  # none: an attacker whom nobody knows
    until: float = 0.0  # by the monotonic clock
    scale: float = 1.0  # of the largest bodies and of the number of images in one
    statuses: Counter[str] = field(default_factory=Counter)

    def going(self) -> bool:
        return time.monotonic() < self.until

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.create_connection((self.host, self.port), timeout=20) as connection:
            yield connection

    def head(self, method: str, path: str, *headers: str) -> bytes:
        own = [f"Authorization: Bearer {self.key}"] if self.key else []
        return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *own, *headers, "", ""]).encode()

    def ask(self, method: str, path: str, *headers: str, body: bytes | Iterable[bytes] = b"") -> str:
        """One request on a connection of its own; answers its status, and remembers it."""
        pieces = (body[at : at + PIECE] for at in range(0, len(body), PIECE)) if isinstance(body, bytes) else body
        length = [f"Content-Length: {len(body)}"] if isinstance(body, bytes) else []
        status = "closed"
        with suppress(OSError), self.connection() as connection:
            connection.sendall(self.head(method, path, *length, "Connection: close", *headers))
            with suppress(OSError):  # answered already, or closed: what was heard until then counts
                for piece in pieces:
                    if not self.going():
                        break
                    connection.sendall(piece)
            status = answer(connection)
        self.statuses[status] += 1
        return status

    def leave(self, method: str, path: str, *headers: str, body: bytes) -> None:
        """Send a request and go away before it is answered."""
        with suppress(OSError), self.connection() as connection:
            connection.sendall(self.head(method, path, f"Content-Length: {len(body)}", *headers) + body)


def answer(connection: socket.socket) -> str:
    """The status of what is heard, marked if it is a refusal that says when to come back."""
    heard = b""
    with suppress(OSError):
        while b"\r\n\r\n" not in heard and (piece := connection.recv(65536)):
            heard += piece
    if not heard.startswith(b"HTTP/1.1 "):
        return "closed"
    status = heard[9:12].decode()
    return f"{status} with Retry-After" if b"\r\nretry-after:" in heard.lower() else status
