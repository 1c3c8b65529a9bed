"""The image's health check: of the API where one listens, of the worker where none does."""

import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.deploy.page import REPOSITORY
from workers.heartbeat import Heartbeat

HEALTHCHECK = REPOSITORY / "deploy" / "healthcheck.py"


def healthy(port: int, home: Path, *arguments: str, **environment: str) -> bool:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"PROTOQUAD_PORT": str(port), "PROTOQUAD_HOME": str(home), "PATH": path, **environment}
    command = [sys.executable, HEALTHCHECK, *arguments]
    return subprocess.run(command, env={**os.environ, **settings}, timeout=60).returncode == 0


@contextmanager
def answering(statuses: dict[str, int]) -> Iterator[int]:
    """An API that answers its paths with these statuses; the port it listens on."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses[self.path])
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(("live", "expected"), [(200, True), (503, False)])
def test_a_container_with_an_api_is_as_healthy_as_the_api(tmp_path: Path, live: int, expected: bool) -> None:
    """By /livez, whatever /readyz says, and by no proxy that the environment names; another path may be given."""
    with answering({"/livez": live, "/readyz": 200}) as port:
        proxied = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}

        found = [healthy(port, tmp_path, **proxied), healthy(port, tmp_path, "/readyz")]

    assert found == [expected, True]


def test_a_container_without_an_api_is_as_healthy_as_its_worker(tmp_path: Path) -> None:
    """By the pulse of the worker."""
    before = healthy(free_port(), tmp_path)
    Heartbeat(tmp_path).beat()
    after = healthy(free_port(), tmp_path)

    assert (before, after) == (False, True)


def test_an_api_that_does_not_answer_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it takes a connection, and whatever the worker beside it does: that is not asked."""
    own = runpy.run_path(str(HEALTHCHECK))
    monkeypatch.setitem(own["main"].__globals__, "SECONDS", 0.2)
    monkeypatch.setattr(sys, "argv", [str(HEALTHCHECK)])
    monkeypatch.setattr(os, "execvp", lambda *_: pytest.fail("the worker was asked"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PROTOQUAD_PORT", str(silent.getsockname()[1]))

        assert own["main"]() == 1
