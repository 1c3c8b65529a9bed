"""Errors in the form of the protocol: whatever is refused under `/v2`, and by whichever part, is `{"error": "…"}`."""

import json
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.inference_protocol.schemas import ErrorBody
from service.problems import MEDIA_TYPE, responses

PREFIX = "/v2"


class ProtocolErrors:
    """Rewrites problems on their way to the caller. Status and other headers stay."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["path"] == PREFIX or scope["path"].startswith(f"{PREFIX}/")):
            send = _Rewriting(send)
        await self.app(scope, receive, send)


class _Rewriting:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None  # of a problem, until its body comes, which is always one message

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
            return
        if self._start is not None:
            start, self._start = self._start, None
            message = {**message, "body": _error(message["body"])}
            headers = MutableHeaders(scope=start)
            headers["content-type"], headers["content-length"] = "application/json", str(len(message["body"]))
            await self._send(start)
        await self._send(message)


def _is_problem(start: Message) -> bool:
    return any(name == b"content-type" and value == MEDIA_TYPE.encode() for name, value in start["headers"])


def _error(problem: bytes) -> bytes:
    return json.dumps({"error": json.loads(problem)["detail"]}, ensure_ascii=False).encode("utf-8", "replace")


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Error answers for a route's `responses`; the first two may come before any route."""
    return {
        status: {"description": found["description"], "model": ErrorBody}
        for status, found in responses(400, 413, *statuses).items()
    }
