"""What the two transports have in common: httpx2's errors and answers as ours."""

from collections.abc import Mapping
from typing import Any

import httpx2

from protoquad_client.config import Config
from protoquad_client.errors import AnswerTimeout, NothingSent, ServiceUnreachable
from protoquad_client.requests import Answer, Request

# The service closes a connection that was idle for five seconds; one that it closes just then would lose a request.
LIMITS = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=2.0)
NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
CHUNK = 1024 * 1024  # bytes of an archive at a time


def arguments(config: Config, request: Request[Any], model: str, seconds: float | None = None) -> dict[str, Any]:
    """For httpx2's `request` and `stream`; `seconds`: that the connection may be silent."""
    patience = min(seconds or max(config.timeout, request.least_seconds), request.most_seconds)
    return {
        "method": request.method,
        "url": config.url + request.path_of(model),
        "params": dict(request.params) or None,
        "headers": {**config.headers(), **request.headers},
        "content": request.content,
        "timeout": httpx2.Timeout(min(config.timeout, patience), read=patience),
        "follow_redirects": False,
    }


def answer_of(response: httpx2.Response) -> Answer:
    """Of a response that was read."""
    return Answer(response.status_code, headers_of(response), response.content)


def headers_of(response: httpx2.Response) -> Mapping[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def unreachable(error: httpx2.RequestError, config: Config) -> ServiceUnreachable:
    found = _unreachable(error, config)
    found.__cause__ = error
    return found


def _unreachable(error: httpx2.RequestError, config: Config) -> ServiceUnreachable:
    what = str(error) or type(error).__name__
    if isinstance(error, NOTHING_SENT):
        return NothingSent(
            f"{config.url} cannot be reached ({what}); is the service running there? "
            "Its address is `url`, or PROTOQUAD_URL in the environment"
        )
    if isinstance(error, httpx2.TimeoutException):
        return AnswerTimeout(f"{config.url} did not answer in time ({what}); allow more with `timeout`")
    return ServiceUnreachable(f"the connection to {config.url} broke ({what})")
