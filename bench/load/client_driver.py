"""`python -m bench.load.client_driver`: reads a JSON plan, predicts its images with the client, and prints JSON.

A process of its own, as the load driver is.
"""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any

from protoquad_client import AsyncClient, Client, Prediction


def predict(plan: dict[str, Any]) -> dict[str, float]:
    """Seconds for all images of the plan, and how many answers were wrong: each shows the class of its place."""
    images = [base64.b64decode(image) for image in plan["images"]]
    run = _run_async if plan["asynchronous"] else _run
    _warm_up(plan["url"], images)
    began = time.perf_counter()
    found = run(plan["url"], islice(cycle(images), plan["count"]))
    seconds = time.perf_counter() - began
    right = sum(one.top[0].class_id == place % len(images) + 1 for place, one in enumerate(found))
    return {"answers": right, "wrong": plan["count"] - right, "seconds": seconds}


def _run(url: str, images: Iterator[bytes]) -> list[Prediction]:
    with Client(url) as client:
        return list(client.predict_many(images))


def _run_async(url: str, images: Iterator[bytes]) -> list[Prediction]:
    async def predictions() -> list[Prediction]:
        async with AsyncClient(url) as client:
            return [one async for one in client.predict_many(images)]

    return asyncio.run(predictions())


def _warm_up(url: str, images: Sequence[bytes]) -> None:
    """Imports what the first request needs; the load driver is given a second too."""
    with Client(url) as client:
        client.predict(images[0])


if __name__ == "__main__":
    print(json.dumps(predict(json.load(sys.stdin))))
