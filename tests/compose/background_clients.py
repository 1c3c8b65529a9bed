"""Clients that predict through the proxy without pause while a step runs, and count the answers."""

import threading
from collections import Counter
from typing import Self

import httpx

from tests.compose.stack import Failed, Stack

CLIENTS = 3
SECONDS_TO_ANSWER = 120


class BackgroundClients:
    """Active inside `with`; every client sends the same image."""

    def __init__(self, stack: Stack, image: bytes) -> None:
        self.answers: Counter[str] = Counter()
        self._url = str(stack.client.base_url)
        self._headers = dict(stack.client.headers)
        self._image = image
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def require_all_answered(self) -> str:
        """How many predictions there were; raises Failed unless all were answered with 200."""
        if set(self.answers) != {"200"}:
            raise Failed(f"not all predictions were answered meanwhile: {dict(self.answers)}")
        return f"{self.answers['200']} predictions meanwhile, none failed"

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, headers=self._headers, timeout=SECONDS_TO_ANSWER) as client:
            while not self._done.is_set():
                try:
                    answer = client.post("/predict", files=[("images", self._image)])
                    self.answers[str(answer.status_code)] += 1
                except httpx.HTTPError as error:
                    self.answers[type(error).__name__] += 1
                self._done.wait(0.05)
