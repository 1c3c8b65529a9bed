"""`/base`: a base session, from a zip of class folders or from a folder of the service's machine."""

from protoquad_client.answers import SessionState
from protoquad_client.requests import Repeat, Request, as_json, given, new_key, parsed_as

SECONDS_TO_LOOK = 600.0  # every image of a zip is looked at before the answer


def from_folder(folder: str, epochs: int | None, idempotency_key: str | None) -> Request[SessionState]:
    body = as_json({"folder": folder})
    return _start(epochs, idempotency_key, body["headers"], body["content"])


def from_zip(epochs: int | None, idempotency_key: str | None) -> Request[SessionState]:
    """The body is the zip, which the caller sends."""
    return _start(epochs, idempotency_key, {"Content-Type": "application/zip"}, None)


def _start(
    epochs: int | None, idempotency_key: str | None, headers: dict[str, str], content: bytes | None
) -> Request[SessionState]:
    return Request(
        "POST",
        "/base",
        parsed_as(SessionState),
        params=given(epochs=epochs),
        headers={**headers, "Idempotency-Key": idempotency_key or new_key()},
        content=content,
        repeat=Repeat.KEYED,
        least_seconds=SECONDS_TO_LOOK,
    )
