"""Sends requests and awaits their answers, with retries: as `transport`, for asyncio."""

from asyncio import sleep, to_thread
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from protoquad_client.answers import Event
from protoquad_client.archive_files import Source, Target
from protoquad_client.config import Config
from protoquad_client.errors import ProtoquadError
from protoquad_client.event_stream import SILENCE, EventReader, Failures
from protoquad_client.problems import problem_of
from protoquad_client.requests import Answer, Parsed, Request
from protoquad_client.retrying import Attempts
from protoquad_client.wire import CHUNK, LIMITS, answer_of, arguments, headers_of, unreachable


class AsyncTransport:
    def __init__(self, config: Config, http: httpx2.AsyncClient | None = None) -> None:
        self._config = config
        self._owned = http is None
        self._http = http or httpx2.AsyncClient(limits=LIMITS)

    async def close(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def send(self, request: Request[Parsed], model: str) -> Parsed:
        what = arguments(self._config, request, model)

        async def send_once() -> Answer:
            return answer_of(await self._http.request(**what))

        return request.parse(await self._attempted(request, send_once))

    async def upload(self, request: Request[Parsed], model: str, source: Source) -> Parsed:
        """The body is read from the source as it is sent."""
        what = arguments(self._config, request, model)
        what["headers"] |= source.headers()

        async def upload_once() -> Answer:
            return answer_of(await self._http.request(**what | {"content": _in_thread(source.chunks())}))

        return request.parse(await self._attempted(request, upload_once))

    async def download(self, request: Request[Any], model: str, target: Target) -> None:
        """The body of the answer is written to the target as it arrives; a new attempt begins it anew."""
        what = arguments(self._config, request, model)

        async def download_once() -> Answer:
            async with self._http.stream(**what) as response:
                if not response.is_success:
                    await response.aread()
                    return answer_of(response)
                target.begin()
                async for chunk in response.aiter_raw(CHUNK):
                    await to_thread(target.write, chunk)
            return Answer(response.status_code, headers_of(response), b"")

        await self._attempted(request, download_once)

    async def events(
        self, request: Request[Any], model: str, reader: EventReader, seconds: float
    ) -> AsyncGenerator[list[Event], None]:
        """The events of one connection, after each chunk that arrives. Raises after `seconds` of silence."""
        what = arguments(self._config, request, model, seconds)
        what["headers"] |= reader.headers()
        with self._ours():
            async with self._http.stream(**what) as response:
                if not response.is_success:
                    await response.aread()
                    raise problem_of(answer_of(response))
                async for chunk in response.aiter_raw():
                    yield reader.feed(chunk)

    async def follow(
        self, request: Request[Any], model: str, last: str | None, ended: Callable[[], Awaitable[bool]] | None = None
    ) -> AsyncIterator[Event]:
        """Events over as many connections as it takes; `ended` is asked when the service has closed one."""
        reader, failures = EventReader(last), Failures(self._config.retries)
        while True:
            error: ProtoquadError | None = None
            try:
                async for events in self.events(request, model, reader, SILENCE):
                    failures.forget()
                    for event in events:
                        yield event
                if ended is not None and await ended():
                    return
            except ProtoquadError as problem:
                error = problem
            await sleep(failures.pause(error))

    async def _attempted(self, request: Request[Any], attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        attempts = Attempts(request, self._config.retries)
        while True:
            try:
                answer = await attempt()
            except httpx2.RequestError as error:
                pause = attempts.after_error(unreachable(error, self._config))
            else:
                if (wanted := attempts.after_answer(answer)) is None:
                    return answer
                pause = wanted
            await sleep(pause)

    @contextmanager
    def _ours(self) -> Iterator[None]:
        try:
            yield
        except httpx2.RequestError as error:
            raise unreachable(error, self._config) from error


async def _in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while chunk := await to_thread(next, chunks, b""):
        yield chunk
