"""Callers who ask through the proxy all the while, as fast as they are answered, and count what they get."""

import threading
from collections import Counter
from types import TracebackType
from typing import Self

import httpx

from tests.compose.stack import Failed, Stack

CALLERS = 3
SECONDS_TO_ANSWER = 120


class Callers:
    """While it is open somebody asks what is on this picture."""

    def __init__(self, stack: Stack, picture: bytes) -> None:
        self.answers: Counter[str] = Counter()
        self._url = str(stack.client.base_url)
        self._headers = dict(stack.client.headers)
        self._picture = picture
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def all_answered(self) -> str:
        """How many, in words; raises if there was one that was not."""
        if set(self.answers) != {"200"}:
            raise Failed(f"of those who asked meanwhile not all were answered: {dict(self.answers)}")
        return f"{self.answers['200']} predictions meanwhile, none failed"

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, headers=self._headers, timeout=SECONDS_TO_ANSWER) as client:
            while not self._done.is_set():
                try:
                    answer = client.post("/predict", files=[("images", self._picture)])
                    self.answers[str(answer.status_code)] += 1
                except httpx.HTTPError as error:
                    self.answers[type(error).__name__] += 1
                self._done.wait(0.05)
