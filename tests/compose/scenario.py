"""What the steps share: how a step is reported, the classes taught so far, and checks of sessions and replicas."""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx

from tests.compose.background_clients import BackgroundClients
from tests.compose.drawn_figures import NAMES, draw, request_of, shots
from tests.compose.stack import Failed, Stack, eventually, inspect

SECONDS_TO_CATCH_UP = 60
CLEAR_LINE = "\x1b[2K"  # compose writes it before each line of a log, even without a terminal


class Scenario:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.taught: list[str] = []
        self.sessions: list[int] = []

    @contextlib.contextmanager
    def step(self, title: str, *services: str) -> Iterator[list[str]]:
        """Prints a line when the body succeeds, with the facts it adds to the list; else the logs of the services."""
        began = time.monotonic()
        facts: list[str] = []
        try:
            yield facts
        except (Failed, httpx.HTTPError) as error:
            print(f"{time.monotonic() - began:7.1f} s  FAILED: {title}", flush=True)
            print(self.stack.compose("ps", "--all"))
            print(self.stack.compose("logs", "--no-color", "--tail", "200", *services).replace(CLEAR_LINE, ""))
            raise Failed(f"{title}: {error}") from error
        details = f" ({'; '.join(facts)})" if facts else ""
        print(f"{time.monotonic() - began:7.1f} s  {title}{details}", flush=True)

    def clients(self) -> BackgroundClients:
        return BackgroundClients(self.stack, draw(self.taught[0], 200))

    def teach_next(self) -> int:
        """Teach the next class; returns its session."""
        name = NAMES[len(self.taught)]
        answer = self.stack.client.post("/classes", data={"name": name}, files=shots(name))
        expect(answer.status_code == 202, f"teaching '{name}' should give 202, not {answer.status_code} {answer.text}")
        self.taught.append(name)
        self.sessions.append(answer.json()["session"]["id"])
        return self.sessions[-1]

    def session(self, number: int) -> dict[str, Any]:
        return dict(self.stack.client.get(f"/sessions/{number}").raise_for_status().json())

    def start_session(self) -> int:
        """Teach a class and wait until a worker runs its session."""
        number = self.teach_next()
        eventually(lambda: self.session(number)["status"] == "running", f"session {number} runs")
        return number

    def finish_session(self, number: int) -> str:
        """Wait until the session has succeeded; returns its verdict and attempt."""
        finished = eventually(
            lambda: (found := self.session(number))["status"] not in {"queued", "running"} and found,
            f"session {number} is finished",
        )
        status, error = finished["status"], finished["error"]
        expect(status == "succeeded", f"session {number} should succeed, but it is {status}: {error}")
        return f"{finished['verdict']} in attempt {finished['attempt']}"

    def events(self, number: int) -> list[str]:
        """The names of the session's events, as a stream until the session is finished."""
        with self.stack.client.stream("GET", f"/sessions/{number}/events") as stream:
            return [line.removeprefix("event: ") for line in stream.iter_lines() if line.startswith("event: ")]

    def require_all_known(self, without: str = "") -> None:
        """Every replica recognises every class taught so far."""
        for replica in self.stack.containers("api"):
            if replica != without:
                wanted = f"{replica} knows {', '.join(self.taught)}"
                eventually(partial(self._knows_all, replica), wanted, seconds=SECONDS_TO_CATCH_UP)

    def _knows_all(self, replica: str) -> bool:
        predictions = self.stack.predict_on(replica, request_of(self.taught))
        return [one["top"][0]["label"] for one in predictions] == self.taught

    def stored_state(self) -> dict[str, list[Any]]:
        """What must survive the loss of any container."""
        fields = {"classes": "name", "versions": "number", "sessions": "status"}
        answers = {path: self.stack.client.get(f"/{path}?limit=500").raise_for_status().json() for path in fields}
        return {path: [item[field] for item in answers[path]["items"]] for path, field in fields.items()}


def expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Failed(otherwise)


def expect_exit(container: str, code: int) -> None:
    found = inspect(container)["State"]["ExitCode"]
    expect(found == code, f"{container} should exit with {code}, not {found}")
