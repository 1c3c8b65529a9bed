"""Sends predictions with aiohttp and checks the answers.

The client shares the cores with the server that it measures, so its cost matters: aiohttp takes 0.085 ms of CPU per
request, httpx 3.3 ms, a prediction about 10 ms. Bodies are made once, before the load.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

BOUNDARY = "protoquad-load"
HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
SECONDS_TO_REUSE = 2.0  # of an idle connection; servers close theirs after five


class WrongAnswer(Exception):
    """Another status than 200, or another class than expected."""


@dataclass(frozen=True)
class PredictRequest:
    """A form with one image, and the class that it shows; None: any class will do."""

    body: bytes
    class_id: int | None

    @classmethod
    def make(cls, field: str, image: bytes, class_id: int | None) -> "PredictRequest":
        head = f'Content-Disposition: form-data; name="{field}"; filename="image.jpg"\r\nContent-Type: image/jpeg'
        return cls(f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + image + f"\r\n--{BOUNDARY}--\r\n".encode(), class_id)


class PredictClient:
    def __init__(self, session: aiohttp.ClientSession, *, ours: bool, path: str) -> None:
        self._session = session
        self._ours = ours
        self._path = path

    @classmethod
    @asynccontextmanager
    async def connect(cls, port: int, *, ours: bool, path: str = "/predict") -> "AsyncIterator[PredictClient]":
        """To a server on this machine; `ours`: it answers as protoquad does."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=SECONDS_TO_REUSE)
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{port}", connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        ) as session:
            yield cls(session, ours=ours, path=path)

    async def predict(self, request: PredictRequest) -> None:
        """Raises WrongAnswer or an error of aiohttp unless the server answers with the right class."""
        async with self._session.post(self._path, data=request.body, headers=HEADERS) as answer:
            body = await answer.read()
        if answer.status != 200:
            raise WrongAnswer(f"HTTP {answer.status}: {body[:200].decode(errors='replace')}")
        content = json.loads(body)
        found = content["predictions"][0]["top"][0]["class_id"] if self._ours else content["class_id"]
        if request.class_id not in (None, found):
            raise WrongAnswer(f"class {found}, not {request.class_id}")
