"""The HTTP server: uvicorn, with limits for its connections."""

import asyncio
import gc
import logging
import socket
from functools import partial
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from service.connection_limits import ACCEPTED_PER_TURN, ConnectionLimits, allowed_connections
from service.connection_protocol import Connection
from service.connections import Connections
from store.settings import Settings

BACKLOG = 2048  # connections that wait to be accepted; a client beyond it gets no answer and tries again a second later
SECONDS_TO_FINISH = 30  # for requests in flight when the service stops

log = structlog.get_logger()


class Server(uvicorn.Server):
    """Logs where it listens, closes connections that wait too long, and ends event streams when it stops."""

    def __init__(self, app: FastAPI, listener: socket.socket, settings: Settings) -> None:
        allowed = allowed_connections(settings.max_connections)
        self.group = Connections(ConnectionLimits(allowed, settings.head_seconds, settings.body_seconds))
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(Connection, group=self.group),  # type: ignore[arg-type]  # a factory works too
                ws="none",
                proxy_headers=False,  # the service trusts no proxy about its clients
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=SECONDS_TO_FINISH,
            )
        )
        self.app = app
        self.listener = listener
        # These are counted in the lines about connections: one line each would flood the log.
        logging.getLogger("uvicorn.error").addFilter(
            lambda line: not line.getMessage().startswith("Invalid HTTP request")
        )
        self._sweeping: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([copy for one in sockets or [] for copy in _copies(one)])
        if self.started:
            self._sweeping = asyncio.create_task(self.group.sweep_forever(self.server_state.connections))
            host, port = self.listener.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            log.info("listening", url=url, docs=f"{url}/docs")
            gc.collect()
            gc.freeze()  # these objects stay: examining them again and again would delay answers

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        context, backbones = getattr(self.app.state, "context", None), getattr(self.app.state, "backbones", None)
        if context is not None:
            context.stopping = True
        if backbones is not None:
            backbones.close()  # callers that wait for a backbone are answered now, not in 30 seconds
        super().handle_exit(sig, frame)


def _copies(listener: socket.socket) -> list[socket.socket]:
    """libuv accepts one connection per listener and turn of the loop: in a flood, clients would wait for seconds."""
    return [listener, *(listener.dup() for _ in range(ACCEPTED_PER_TURN - 1))]
