"""Where `protoquad serve` listens, answers leave at once."""

import asyncio
import socket

import pytest

from protoquad import serve_command


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_answers_do_not_wait_for_an_acknowledgement(host: str) -> None:
    """Nagle's algorithm is off on every connection: head and body of an answer are two small packets."""
    undelayed = []

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        undelayed.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def visit(listener: socket.socket) -> None:
        async with await asyncio.start_server(accepted, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            await asyncio.wait_for(reader.read(), 10)
            writer.close()
            await writer.wait_closed()

    with serve_command._listening(host, 0) as listener:
        asyncio.run(visit(listener))

    assert [bool(one) for one in undelayed] == [True]
