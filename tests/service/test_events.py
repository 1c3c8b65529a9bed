"""`/events`: one stream tells all that happens to a model, from whichever process."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

Until = Callable[[Callable[[], Any], str], None]


class Stream:
    """The events of a model, read as they come."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        self.last_id = ""

    def next(self) -> tuple[str, dict[str, Any]]:
        kind, data = "", None
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = json.loads(value)
            elif not line and data is not None:
                return kind, data
        raise EOFError

    def until(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """The events up to the first of a kind."""
        found = [self.next()]
        while found[-1][0] != kind:
            found.append(self.next())
        return found

    def begin(self) -> None:
        """Read the id with which a stream begins."""
        while not self.last_id:
            name, _, value = next(self._lines).partition(": ")
            self.last_id = value if name == "id" else ""


@contextmanager
def watching(learner: Any, **headers: str) -> Iterator[Stream]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with learner.service.http.stream("GET", f"{learner.prefix}/events", headers=named) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        stream = Stream(answer)
        if "Last_Event_ID" not in headers:
            stream.begin()
        yield stream


def test_what_is_taught_is_told(learner: Any) -> None:
    """With the ids of what changed, and the name of the model."""
    with watching(learner) as stream:
        body = learner.teach("red").json()

        found = dict(stream.until("session"))

    assert found["taught"] == {"model": learner.name, "class_id": body["class"]["id"], "version": body["version"]}
    assert found["head"] == {"model": learner.name, "version": body["version"]}
    assert found["version"]["kind"] == "provisional"
    assert found["session"] == {"model": learner.name, "session": body["session"]["id"], "event": "queued"}


def test_who_comes_back_hears_what_happened_meanwhile(learner: Any) -> None:
    """Everything once: a session, a name, a class that was deleted."""
    red, green = learner.taught("red", "green")
    with watching(learner) as stream:
        last = stream.last_id
    learner.refine()
    learner.rename(red["id"], "crimson")
    learner.delete(green["id"])

    with watching(learner, Last_Event_ID=last) as stream:
        found = [stream.next() for _ in range(6)]

    kinds = [kind for kind, _ in found]
    assert kinds[:4] == ["version", "version", "deleted", "head"]
    assert "renamed" in kinds
    assert ("deleted", {"model": learner.name, "class_id": green["id"], "version": learner.version}) in found


def test_another_model_is_another_stream(learner: Any) -> None:
    """What happens elsewhere is not told here."""
    other = learner.service.learner()
    with watching(learner) as stream:
        other.teach("red", f"red of {learner.name}")
        learner.taught("green")

        found = stream.until("session")

    assert {data["model"] for _, data in found} == {learner.name}


def test_the_stream_ends_with_its_key(locked_service: Any) -> None:
    """Within seconds after it was revoked, without another event."""
    admin = {"Authorization": f"Bearer {locked_service.keys['admin']}"}
    made = locked_service.http.post("/keys", json={"name": "watcher", "scopes": ["predict"]}, headers=admin).json()
    own = {"Authorization": f"Bearer {made['key']}"}

    with locked_service.http.stream("GET", "/events", headers=own) as answer:
        locked_service.http.delete(f"/keys/{made['id']}", headers=admin)
        rest = list(answer.iter_lines())

    assert not any(line.startswith("event") for line in rest)


def test_the_stream_ends_with_its_model(service: Any) -> None:
    """Nothing more can happen to it."""
    assert service.http.post("/models", json={"name": "short-lived"}).status_code == 201

    with watching(service.learner("short-lived")) as stream:
        service.http.delete("/models/short-lived")

        with pytest.raises(EOFError):
            stream.next()


@pytest.mark.parametrize("last", ["nonsense", "1-2", "-1"])
def test_an_id_that_no_event_has_is_refused(service: Any, last: str) -> None:
    """With what to send instead."""
    answer = service.http.get("/events", headers={"Last-Event-ID": last})

    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-parameter")


def test_the_number_of_streams_is_bounded(start: Any, until: Until) -> None:
    """Together with those of sessions; a place is free again when a reader leaves."""
    service = start(max_streams=1)
    learner = service.learner()

    with watching(learner):
        refused = service.http.get("/events")
    until(lambda: service.context.session_watch.streams.taken == 0, "the place is free")

    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/too-many-streams")
    with watching(learner):
        pass
