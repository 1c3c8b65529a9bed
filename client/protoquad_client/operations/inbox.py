"""`/inbox`: images that predictions have kept."""

from collections.abc import Sequence
from typing import Literal

from protoquad_client.answers import Page, Sample
from protoquad_client.operations.classes import TaughtRequest, changing
from protoquad_client.requests import PAGE, Repeat, Request, as_bytes, as_json, given, nothing, parsed_as_page, quoted

Sort = Literal["margin", "newest"]
MOST_DISMISSED = 1000  # at a time


def page(cursor: str | None = None, sort: Sort | None = None) -> Request[Page[Sample]]:
    return Request("GET", "/inbox", parsed_as_page(Sample), params=given(cursor=cursor, limit=PAGE, sort=sort))


def image(sample_id: int) -> Request[bytes]:
    return Request("GET", f"/inbox/{quoted(sample_id)}/image", as_bytes)


def thumbnail(sample_id: int) -> Request[bytes]:
    return Request("GET", f"/inbox/{quoted(sample_id)}/thumbnail", as_bytes)


def resolve(samples: Sequence[int], class_id: int | None = None, name: str | None = None) -> TaughtRequest:
    if (class_id is None) == (name is None):
        raise ValueError("say what the samples show: either `class_id`, or `name` of a new class")
    return changing("POST", "/inbox/resolve", {"samples": list(samples), "class_id": class_id, "name": name})


def dismiss(samples: Sequence[int]) -> list[Request[None]]:
    """One request for every thousand samples."""
    parts = [list(samples[start : start + MOST_DISMISSED]) for start in range(0, len(samples), MOST_DISMISSED)]
    bodies = [as_json({"samples": part, "dismiss": True}) for part in parts]
    return [Request("POST", "/inbox/resolve", nothing, repeat=Repeat.UNSAFE, **body) for body in bodies]


def clear() -> Request[None]:
    return Request("DELETE", "/inbox", nothing, repeat=Repeat.UNSAFE)
