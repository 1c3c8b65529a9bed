"""`protoquad serve`: the API and, with the embedded database, a worker process beside it."""

import contextlib
import fcntl
import gc
import ipaddress
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, TextIO

import structlog
import typer
import uvicorn
from fastapi import FastAPI

from core.cores import let_threads_finish
from migrations import schema
from protoquad import logs
from protoquad.allocator import few_arenas
from protoquad.plain_errors import Refused, plain_errors, settings
from protoquad.worker_process import WorkerProcess
from service.app import create_app
from store import api_keys
from store.database import Database
from store.settings import Settings

log = structlog.get_logger()

SECONDS_TO_FINISH = 30  # for requests in flight when the service is told to stop


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 unless set.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 8000 unless set, 0 for any.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder of the embedded database; .protoquad unless set.")] = None,
    worker: Annotated[bool | None, typer.Option(help="Start a worker process beside the API.")] = None,
) -> None:
    """Run the service. With no settings at all: SQLite in .protoquad, one worker, http://127.0.0.1:8000."""
    with plain_errors():
        chosen = settings(host=host, port=port, home=home, worker=worker)
        logs.set_up(chosen)
        few_arenas()
        let_threads_finish()
        with contextlib.ExitStack() as stack:
            if chosen.embedded:
                stack.enter_context(_only_one(chosen.home))
            database = Database(chosen.url)
            stack.callback(database.close)
            _ready(database, chosen)
            listener = stack.enter_context(_listening(chosen.host, chosen.port))
            if chosen.own_worker:
                stack.enter_context(WorkerProcess(chosen))
            for number in (signal.SIGTERM, signal.SIGINT):
                # The server raises the signal again once it has stopped; by then there is a worker to be stopped too.
                signal.signal(number, _ignored)
            _Server(create_app(chosen, database), listener).run(sockets=[listener])


def _ignored(_number: int, _frame: FrameType | None) -> None:
    """A function, not SIG_IGN: that a worker would inherit."""


def _ready(database: Database, chosen: Settings) -> None:
    if chosen.embedded:
        schema.upgrade(database)
    else:
        schema.require_current(database)
    with database.read() as db:
        locked = bool(api_keys.valid(db))
    if not locked and not is_loopback(chosen.host):
        raise Refused(
            f"{chosen.host} can be reached from other machines and no API key was made; "
            "run `protoquad keys create` first, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.contextmanager
def _only_one(home: Path) -> Iterator[None]:
    """Hold the home folder: a second service on the same one would start a second worker and share nothing."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "serve.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"a service runs on {home} already{_by_whom(file)}; stop it, or set PROTOQUAD_HOME") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _by_whom(file: TextIO) -> str:
    file.seek(0)
    holder = file.read().strip()
    return f" (process {holder})" if holder else ""


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # Named as TCP, without which asyncio leaves Nagle's algorithm on: 40 ms for every answer.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        raise Refused(f"cannot listen on {host}:{port}: {error.strerror}; set PROTOQUAD_PORT to another") from error
    with listener:
        yield listener


class _Server(uvicorn.Server):
    """Says where it listens, and tells event streams to end as soon as it is to stop."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=SECONDS_TO_FINISH,
            )
        )
        self.app = app
        self.listener = listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.listener.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            log.info("listening", url=url, docs=f"{url}/docs")
            gc.collect()
            gc.freeze()  # what is there now stays: walking it again and again would hold up answers

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        parts = getattr(self.app.state, "parts", None)
        if parts is not None:
            parts.stopping = True
        super().handle_exit(sig, frame)
