"""`protoquad serve`: the API and, with the embedded database, a worker process beside it."""

import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

import structlog
import typer

from protoquad import logs
from protoquad.allocator import limit_arenas
from protoquad.home_folder import make_cache_home, warnings
from protoquad.home_lock import only_service
from protoquad.plain_errors import Refused, plain_errors, settings
from protoquad.quick_imports import quick_imports
from protoquad.ready_database import ready_database
from protoquad.worker_process import WorkerProcess
from service.auth import is_loopback
from store import api_keys
from store.database import Database, sqlite_file
from store.settings import Settings
from tracing.export import exporting

log = structlog.get_logger()


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
        limit_arenas()
        with contextlib.ExitStack() as stack:
            if chosen.embedded:
                stack.enter_context(only_service(chosen.home))
            else:
                make_cache_home(chosen.home)
            database = stack.enter_context(ready_database(chosen))
            _require_key(database, chosen)
            _look_after_files(database, chosen)
            listener = stack.enter_context(_listening(chosen.host, chosen.port))
            with quick_imports():  # torch is among them: whoever is refused has not waited for it
                from service.app import create_app
                from service.server import Server
            stack.enter_context(exporting(chosen.otlp_endpoint, "protoquad"))
            if chosen.own_worker:
                stack.enter_context(WorkerProcess(chosen))
            for number in (signal.SIGTERM, signal.SIGINT):
                # The server raises the signal again once it has stopped; by then there is a worker to be stopped too.
                signal.signal(number, _ignored)
            Server(create_app(chosen, database), listener, chosen).run(sockets=[listener])


def _ignored(_number: int, _frame: FrameType | None) -> None:
    """A function, not SIG_IGN: that a worker would inherit."""


def _require_key(database: Database, chosen: Settings) -> None:
    with database.read() as db:
        locked = bool(api_keys.valid(db))
    if not locked and not is_loopback(chosen.host):
        raise Refused(
            f"{chosen.host} can be reached from other machines and no API key was made; "
            "run `protoquad keys create` first, or listen on 127.0.0.1"
        )


def _look_after_files(database: Database, chosen: Settings) -> None:
    for warning in warnings(chosen.home, sqlite_file(chosen.url)):
        log.warning(warning)
    if database.write_ahead_log:  # a service that was killed may have left erased images in it
        database.write_ahead_log.truncate_soon()


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
