"""The service as a user runs it: processes of its own, on a real port."""

import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
from PIL import Image, ImageDraw

# A small network that needs no compiling: it starts in a third of the time.
SMALL = {"PROTOQUAD_BACKBONE": "resnet32", "PROTOQUAD_ENGINE": "torch", "PROTOQUAD_LOG_FORMAT": "json"}
SECONDS_TO_CLOSE = 3
SECONDS = 120  # for anything that a busy machine may delay; nothing waits that long unless something is wrong


class Running:
    """A `protoquad` process and what it says; or another of its kind."""

    def __init__(self, arguments: list[str], environment: dict[str, str], *, module: str = "protoquad") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, **SMALL, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        self._news: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = {"event": line.strip()}
                self.lines.append(entry)
                self._news.put(entry)
        self._news.put(None)

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next line about this event."""
        deadline = time.monotonic() + SECONDS
        while (left := deadline - time.monotonic()) > 0:
            entry = self._news.get(timeout=left)
            if entry is None:
                raise AssertionError(f"it ended without saying '{event}': {self.lines[-5:]}")
            if entry.get("event") == event:
                return entry
        raise AssertionError(f"it did not say '{event}': {self.lines[-5:]}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)

    def ended(self) -> None:
        self.process.wait(SECONDS)
        self._listener.join(SECONDS)

    @property
    def last_words(self) -> str:
        return " ".join(str(line["event"]) for line in self.lines)

    def close(self) -> None:
        """Whatever the test has left. The worker of a killed service holds its output until it notices: not awaited."""
        self.kill()
        self._listener.join(SECONDS_TO_CLOSE)


class Service(Running):
    """`protoquad serve` on a free port."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__(["serve", "--port", "0"], {"PROTOQUAD_SESSION_DELAY": "0", **environment})
        self.url = self.wait_for("listening")["url"]
        self.client = httpx.Client(base_url=self.url, timeout=SECONDS)

    def close(self) -> None:
        self.client.close()
        super().close()

    def teach(self, name: str, colour: str, **headers: str) -> httpx.Response:
        shots = [("shots", (f"{seed}.png", picture(colour, seed), "image/png")) for seed in range(3)]
        return self.client.post("/classes", data={"name": name}, files=shots, headers=headers)

    def predict(self, colour: str, seed: int = 77, **query: Any) -> dict[str, Any]:
        answer = self.client.post("/predict", params=query, files=[("images", picture(colour, seed))])
        assert answer.status_code == 200, answer.text
        prediction: dict[str, Any] = answer.json()
        return prediction

    def nearest(self, colour: str) -> str:
        label: str = self.predict(colour)["predictions"][0]["top"][0]["label"]
        return label

    def everything(self, path: str) -> list[dict[str, Any]]:
        """All items of all pages."""
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            query = {"cursor": cursor} if cursor else {}
            page = self.client.get(path, params=query).raise_for_status().json()
            items += page["items"]
            cursor = page["next"]
            if cursor is None:
                return items

    def session_over(self, number: int) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            session: dict[str, Any] = self.client.get(f"/sessions/{number}").raise_for_status().json()
            return session if session["status"] in {"succeeded", "failed", "cancelled"} else None

        return eventually(look)


def eventually(look: Callable[[], Any]) -> Any:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        threading.Event().wait(0.05)
    raise AssertionError("it did not come about in time")


def picture(colour: str, seed: int) -> bytes:
    """A blot of a colour, each a little different."""
    image = Image.new("RGB", (64, 64), "white")
    left, top = 4 + seed % 7, 4 + seed % 5
    ImageDraw.Draw(image).ellipse((left, top, left + 45, top + 40 + seed % 3), fill=colour)
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()
