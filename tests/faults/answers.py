"""What a replica answers when the oracle asks, and what of it is compared."""

from typing import Any

from tests.faults.drawn_images import COLOURS, picture
from tests.faults.stage import Replica

PROBES = tuple(COLOURS)


def predicted(replica: Replica, model: str, pictures: list[bytes], **query: Any) -> dict[str, Any]:
    files = [("images", data) for data in pictures or [picture(PROBES[0], 0)]]
    answer = replica.client.post(f"/models/{model}/predict", params=query, files=files)
    body: dict[str, Any] = answer.raise_for_status().json()
    for prediction in body["predictions"]:
        del prediction["sample_id"]  # is another each time
    return body


def probed(replica: Replica, model: str, version: int) -> list[dict[str, Any]]:
    """What a version answers to the same images every time, by the ids of classes: their names may change."""
    answer = predicted(replica, model, [picture(colour, 0) for colour in PROBES], version=version)
    return [
        _without_label({**one, "top": [_without_label(near) for near in one["top"]]}) for one in answer["predictions"]
    ]


def _without_label(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "label"}


def everything(replica: Replica, path: str) -> list[dict[str, Any]]:
    page = replica.client.get(path, params={"limit": 100}).raise_for_status().json()
    items: list[dict[str, Any]] = page["items"]
    return items


def same_distances(found: dict[int, float], right: dict[int, float]) -> bool:
    return found.keys() == right.keys() and all(abs(found[one] - right[one]) < 1e-3 for one in found)


def difference(first: list[Any], second: list[Any]) -> str:
    return "; ".join(f"{one} became {other}" for one, other in zip(first, second, strict=True) if one != other)
