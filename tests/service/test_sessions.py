"""`/sessions`: what is being learned can be watched, stopped, and never costs what was taught."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from core.guard import CONFIDENCE, judge
from learners.refined_version import RefinedVersion
from learners.refining import SessionConfig
from tests.service.conftest import QUICK

Until = Callable[[Callable[[], Any], str], None]
Meanwhile = Callable[[Callable[[], object]], Any]


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the disk is on fire")


def events_of(learner: Any, session_id: int, **headers: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Id, kind and content of every event, until the stream ends by itself."""
    path = f"/sessions/{session_id}/events"
    answer = learner.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [parsed(block) for block in answer.text.split("\n\n") if block and not block.startswith(":")]


def parsed(block: str) -> tuple[int, str, dict[str, Any]]:
    fields = dict(line.split(": ", 1) for line in block.splitlines())
    return int(fields["id"]), fields["event"], json.loads(fields["data"])


# What comes of a session


def test_a_session_refines_the_classes_that_wait(learner: Any) -> None:
    """Queued, then succeeded with a verdict and the version it made, which is served and measured."""
    taught = [learner.teach(look).json() for look in ("red", "green", "blue")]
    queued = learner.get(f"/sessions/{taught[0]['session']['id']}")

    session = learner.refine()

    version = learner.get(f"/versions/{session['version']}")
    assert (queued["status"], queued["verdict"], queued["version"]) == ("queued", None, None)
    assert (session["status"], session["verdict"], session["attempt"]) == ("succeeded", "promoted", 1)
    assert session["created_at"] <= session["started_at"] <= session["finished_at"]
    assert session["error"] is None
    assert (version["kind"], version["verdict"], version["session"]) == ("incremental", "promoted", session["id"])
    assert (version["active"], version["number"]) == (True, learner.version)
    assert {found["status"] for found in learner.classes().values()} == {"learned"}
    assert learner.labels("red", "green", "blue") == ["red", "green", "blue"]


def test_a_refined_version_is_measured_on_what_was_known_before(learner: Any) -> None:
    """Accuracy on old and new classes, and what was forgotten, in percent and points."""
    gated = learner.service.make_worker(SessionConfig(augmented=2))
    learner.taught("red", "green", "blue")
    first = learner.get(f"/versions/{learner.refine(gated)['version']}")
    learner.taught("yellow", "violet")

    second = learner.get(f"/versions/{learner.refine(gated)['version']}")

    assert (first["accuracy"]["old"], first["forgetting"]) == (None, None)
    assert 0 <= first["accuracy"]["new"] <= 100
    assert 80 <= second["accuracy"]["old"] <= 100
    assert second["forgetting"] == second["details"]["accuracy_before"]["old"] - second["accuracy"]["old"]
    assert second["details"]["accuracy_before"]["new"] is not None
    gain, error = second["details"]["gain"], second["details"]["gain_error"]
    assert (second["verdict"] == "promoted") == (gain > CONFIDENCE * error)
    assert f"by {gain:.3f} ± {error:.3f} in log-probability" in second["details"]["reason"]


def test_a_session_too_strict_to_pass_is_rejected_by_its_measurements(learner: Any) -> None:
    """The gate itself refuses, and says by how much."""
    learner.taught("red", "green", "blue")
    learner.refine()
    learner.taught("yellow")
    head = learner.version
    searching = replace(QUICK.incremental, search=True)
    strict = replace(QUICK, incremental=searching, judge=partial(judge, tolerance=-1.0))

    session = learner.refine(learner.service.make_worker(strict))

    version = learner.get(f"/versions/{session['version']}")
    assert (session["status"], session["verdict"]) == ("succeeded", "rejected")
    assert "accuracy on old classes fell from" in session["reason"]
    assert (version["verdict"], version["accuracy"] is not None) == ("rejected", True)
    assert learner.version == head
    assert learner.labels("yellow", "red") == ["yellow", "red"]
    assert learner.classes()["yellow"]["status"] == "learned"


def test_sessions_are_listed_newest_first_in_pages(learner: Any) -> None:
    """Each model has its own; following `next` shows every one once."""
    for look in ("red", "green", "blue"):
        learner.taught(look)
        learner.post(f"/sessions/{learner.get('/sessions')['items'][0]['id']}/cancel")

    pages = [learner.get("/sessions", limit=2)]
    while pages[-1]["next"] is not None:
        pages.append(learner.get("/sessions", limit=2, cursor=pages[-1]["next"]))

    numbers = [found["id"] for page in pages for found in page["items"]]
    assert [len(page["items"]) for page in pages] == [2, 1]
    assert numbers == sorted(set(numbers), reverse=True)


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/events"), ("POST", "/cancel")])
def test_a_session_of_another_model_is_not_there(learner: Any, method: str, path: str) -> None:
    """404 under any model but its own, and it is left alone."""
    session = learner.teach("red").json()["session"]

    answer = learner.service.http.request(method, f"/sessions/{session['id']}{path}")

    assert answer.status_code == 404
    assert learner.get(f"/sessions/{session['id']}") == session


# Watching


def test_a_session_that_is_over_tells_its_story(learner: Any) -> None:
    """Every step in order, then the stream ends; the last event says how it ended."""
    learner.taught("red", "green", "blue")
    session = learner.refine()

    told = events_of(learner, session["id"])

    kinds = [kind for _, kind, _ in told]
    stages = list(dict.fromkeys(data["stage"] for _, kind, data in told if kind == "progress"))
    steps = [data for _, _, data in told if data.get("fraction")]
    assert (kinds[:2], kinds[-1]) == (["queued", "running"], "succeeded")
    assert stages == ["loading", "looking", "learning", "publishing"]
    assert steps[-1]["fraction"] == 1
    assert steps[-1]["losses"]["session"] >= 0
    assert told[-1][2] | {"verdict": "promoted", "version": session["version"]} == told[-1][2]
    assert [number for number, _, _ in told] == sorted({number for number, _, _ in told})


def test_a_stream_goes_on_after_the_last_event_seen(learner: Any) -> None:
    """Reconnecting with `Last-Event-ID` repeats nothing and leaves nothing out."""
    learner.taught("red", "green", "blue")
    session = learner.refine()
    told = events_of(learner, session["id"])

    rest = events_of(learner, session["id"], Last_Event_ID=str(told[2][0]))
    nothing = events_of(learner, session["id"], Last_Event_ID=str(told[-1][0]))

    assert rest == told[3:]
    assert nothing == []


def test_a_session_can_be_watched_while_it_runs(learner: Any, interrupted: Meanwhile, until: Until) -> None:
    """Events arrive as they happen: the reader has seen the learning before the session is over."""
    learner.taught("red", "green", "blue")
    session = learner.get("/sessions")["items"][0]
    seen: list[str] = []
    learning_seen = threading.Event()

    def watch() -> None:
        url = f"{learner.service.url}{learner.prefix}/sessions/{session['id']}/events"
        with httpx.stream("GET", url, timeout=60) as stream:
            for line in stream.iter_lines():
                seen.append(line)
                if '"fraction": 1' in line:
                    learning_seen.set()

    with ThreadPoolExecutor() as pool:
        watching = pool.submit(watch)
        until(lambda: "event: queued" in seen, "the stream has begun")
        learner.refine(interrupted(lambda: learning_seen.wait(10)))
        watching.result(10)

    assert learning_seen.is_set()
    assert [line for line in seen if line.startswith("event: ")][-1] == "event: succeeded"


def test_an_event_id_that_cannot_be_is_refused(learner: Any) -> None:
    """422, and no stream is begun."""
    session = learner.teach("red").json()["session"]

    answer = learner.ask("GET", f"/sessions/{session['id']}/events", headers={"Last-Event-ID": "yesterday"})

    assert answer.status_code == 422
    assert "yesterday" in answer.json()["detail"]


# Stopping


def test_a_queued_session_is_cancelled_at_once(learner: Any) -> None:
    """No worker takes it up; its classes stay servable and provisional."""
    session = learner.teach("red").json()["session"]

    answer = learner.post(f"/sessions/{session['id']}/cancel")

    assert answer.status_code == 202
    assert (answer.json()["status"], answer.json()["cancel_requested"]) == ("cancelled", True)
    assert learner.service.worker.run_next(session["id"]) is False
    assert learner.labels("red") == ["red"]
    assert learner.classes()["red"]["status"] == "provisional"
    assert events_of(learner, session["id"])[-1][1] == "cancelled"


def test_a_running_session_is_cancelled_between_two_steps(learner: Any, interrupted: Meanwhile) -> None:
    """Nothing of it is published, however little was left to do."""
    learner.taught("red", "green", "blue")
    session = learner.get("/sessions")["items"][0]
    head, answers = learner.version, []

    over = learner.refine(interrupted(lambda: answers.append(learner.post(f"/sessions/{session['id']}/cancel"))))

    assert (answers[0].status_code, answers[0].json()["status"]) == (202, "running")
    assert answers[0].json()["cancel_requested"] is True
    assert (over["status"], over["verdict"], over["version"]) == ("cancelled", None, None)
    assert learner.version == head
    assert learner.labels("red", "green", "blue") == ["red", "green", "blue"]


def test_a_session_cancelled_while_its_result_is_written_does_not_become_a_version(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 202 for the cancelling is a promise."""
    learner.taught("red", "green", "blue")
    session = learner.get("/sessions")["items"][0]
    head, plain = learner.version, RefinedVersion.publish

    def late(refined: RefinedVersion, notifier: Any) -> None:
        assert learner.post(f"/sessions/{session['id']}/cancel").status_code == 202
        plain(refined, notifier)

    monkeypatch.setattr(RefinedVersion, "publish", late)
    over = learner.refine()

    assert over["status"] == "cancelled"
    assert learner.version == head == learner.get("/versions")["items"][0]["number"]


def test_a_session_that_is_over_cannot_be_cancelled(learner: Any) -> None:
    """409 says how it ended."""
    learner.taught("red")
    session = learner.refine()

    answer = learner.post(f"/sessions/{session['id']}/cancel")

    assert answer.status_code == 409
    assert answer.json()["detail"] == f"session {session['id']} has succeeded already"


def test_cancelled_classes_are_refined_with_the_next_that_is_taught(learner: Any) -> None:
    """Cancelling a session does not cancel its classes."""
    learner.taught("red", "green")
    learner.post(f"/sessions/{learner.get('/sessions')['items'][0]['id']}/cancel")

    learner.taught("blue")
    learner.refine()

    assert {name: found["status"] for name, found in learner.classes().items()} == dict.fromkeys(
        ("red", "green", "blue"), "learned"
    )


# Going wrong


def test_a_session_that_fails_is_tried_again_and_given_up_at_last(learner: Any) -> None:
    """After three attempts it has failed and says why; its classes stay servable and the next session takes them."""
    learner.taught("red", "green", "blue")
    session = learner.get("/sessions")["items"][0]
    worker = learner.service.make_worker(learn=broken)
    tries = [worker.run_next(session["id"]) for _ in range(4)]

    failed = learner.get(f"/sessions/{session['id']}")
    assert tries == [True, True, True, False]
    assert (failed["status"], failed["attempt"], failed["version"]) == ("failed", 3, None)
    assert failed["error"] == "RuntimeError: the disk is on fire"
    assert [kind for _, kind, _ in events_of(learner, session["id"]) if kind != "progress"] == [
        "queued",
        *["running", "retry"] * 2,
        "running",
        "failed",
    ]
    assert learner.labels("red", "green", "blue") == ["red", "green", "blue"]
    learner.taught("yellow")
    assert learner.refine()["status"] == "succeeded"
    assert {found["status"] for found in learner.classes().values()} == {"learned"}


def test_a_session_that_fails_once_may_still_succeed(learner: Any) -> None:
    """The second attempt does what the first could not."""
    learner.taught("red", "green", "blue")
    session = learner.get("/sessions")["items"][0]
    learner.service.make_worker(learn=broken).run_next(session["id"])
    between = learner.get(f"/sessions/{session['id']}")

    learner.service.worker.run_next(session["id"])

    over = learner.get(f"/sessions/{session['id']}")
    assert (between["status"], between["error"]) == ("running", "RuntimeError: the disk is on fire")
    assert (over["status"], over["attempt"], over["verdict"]) == ("succeeded", 2, "promoted")


def test_an_activation_while_a_session_runs_wins(learner: Any, interrupted: Meanwhile) -> None:
    """The result is set aside, what was activated is served, and the classes that wait get a new session."""
    learner.taught("red", "green", "blue")
    chosen = learner.version
    learner.taught("yellow")

    session = learner.refine(interrupted(lambda: learner.activate(chosen)))

    assert (session["status"], session["verdict"]) == ("succeeded", "rejected")
    assert session["reason"] == f"version {chosen} was activated while the session ran on version {chosen + 1}"
    assert learner.version == chosen
    assert learner.predict("red")["version"] == chosen
    again = learner.refine()
    assert (again["id"] > session["id"], again["verdict"]) == (True, "promoted")
    statuses = {name: found["status"] for name, found in learner.classes().items()}
    assert statuses == {"red": "learned", "green": "learned", "blue": "learned", "yellow": "provisional"}


def test_a_model_deleted_while_its_session_runs_takes_the_session_with_it(learner: Any, interrupted: Meanwhile) -> None:
    """The worker goes on with other sessions, and nothing of the model is left."""
    learner.taught("red", "green", "blue")
    session = learner.get("/sessions")["items"][0]
    worker = interrupted(lambda: learner.service.http.delete(f"/models/{learner.name}"))

    assert worker.run_next(session["id"]) is True

    assert learner.ask("GET", f"/sessions/{session['id']}").status_code == 404
    assert worker.run_next(session["id"]) is False
