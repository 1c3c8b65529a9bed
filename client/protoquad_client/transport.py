"""Sends requests and waits for their answers, with retries."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from time import sleep
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


class Transport:
    def __init__(self, config: Config, http: httpx2.Client | None = None) -> None:
        self._config = config
        self._owned = http is None
        self._http = http or httpx2.Client(limits=LIMITS)

    def close(self) -> None:
        if self._owned:
            self._http.close()

    def send(self, request: Request[Parsed], model: str) -> Parsed:
        what = arguments(self._config, request, model)
        return request.parse(self._attempted(request, lambda: answer_of(self._http.request(**what))))

    def upload(self, request: Request[Parsed], model: str, source: Source) -> Parsed:
        """The body is read from the source as it is sent."""
        what = arguments(self._config, request, model)
        what["headers"] |= source.headers()
        return request.parse(
            self._attempted(request, lambda: answer_of(self._http.request(**what | {"content": source.chunks()})))
        )

    def download(self, request: Request[Any], model: str, target: Target) -> None:
        """The body of the answer is written to the target as it arrives; a new attempt begins it anew."""
        what = arguments(self._config, request, model)

        def download_once() -> Answer:
            with self._http.stream(**what) as response:
                if not response.is_success:
                    response.read()
                    return answer_of(response)
                target.begin()
                for chunk in response.iter_raw(CHUNK):
                    target.write(chunk)
            return Answer(response.status_code, headers_of(response), b"")

        self._attempted(request, download_once)

    def events(
        self, request: Request[Any], model: str, reader: EventReader, seconds: float
    ) -> Generator[list[Event], None, None]:
        """The events of one connection, after each chunk that arrives. Raises after `seconds` of silence."""
        what = arguments(self._config, request, model, seconds)
        what["headers"] |= reader.headers()
        with self._ours(), self._http.stream(**what) as response:
            if not response.is_success:
                response.read()
                raise problem_of(answer_of(response))
            for chunk in response.iter_raw():
                yield reader.feed(chunk)

    def follow(
        self, request: Request[Any], model: str, last: str | None, ended: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """Events over as many connections as it takes; `ended` is asked when the service has closed one."""
        reader, failures = EventReader(last), Failures(self._config.retries)
        while True:
            error: ProtoquadError | None = None
            try:
                for events in self.events(request, model, reader, SILENCE):
                    failures.forget()
                    yield from events
                if ended():
                    return
            except ProtoquadError as problem:
                error = problem
            sleep(failures.pause(error))

    def _attempted(self, request: Request[Any], attempt: Callable[[], Answer]) -> Answer:
        attempts = Attempts(request, self._config.retries)
        while True:
            try:
                answer = attempt()
            except httpx2.RequestError as error:
                pause = attempts.after_error(unreachable(error, self._config))
            else:
                if (wanted := attempts.after_answer(answer)) is None:
                    return answer
                pause = wanted
            sleep(pause)

    @contextmanager
    def _ours(self) -> Iterator[None]:
        try:
            yield
        except httpx2.RequestError as error:
            raise unreachable(error, self._config) from error
