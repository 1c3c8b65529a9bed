"""Another service: it answers as it is told, and notes with which keys it was asked."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@dataclass(frozen=True)
class Answering:
    url: str
    keys: list[str | None] = field(default_factory=list)


@contextmanager
def answering(answers: Mapping[str, tuple[int, Any]], seconds: float = 0.0) -> Iterator[Answering]:
    """Status and content by path; its clock is ahead by so many seconds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.keys.append(self.headers.get("Authorization"))
            status, body = answers.get(self.path.partition("?")[0], (404, {}))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate((timestamp or time.time()) + seconds, usegmt=True)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Answering(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()
