"""`POST /base`: what is taken and what is refused, and what a caller sees of the session."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.painted import picture
from tests.service.base_requests import GOOD, RED_BLUE, ZIP, Meanwhile, left, parts, run, send
from tests.zips import classes, folder_of, link, with_entry, zipped


def test_its_progress_is_that_of_a_session(learner: Any) -> None:
    """Files that were read, then epochs with their loss; the stream ends with the outcome."""
    session = run(learner, send(learner).json()["id"])

    events = learner.ask("GET", f"/sessions/{session['id']}/events").text
    kinds = [line.removeprefix("event: ") for line in events.splitlines() if line.startswith("event: ")]
    stages = [line.split('"stage": "')[1].split('"')[0] for line in events.splitlines() if '"stage"' in line]
    assert (kinds[:2], kinds[-1]) == (["queued", "running"], "succeeded")
    assert list(dict.fromkeys(stages)) == ["loading", "looking", "learning", "publishing"]
    assert '"files": 8, "of": 8' in events
    assert '"cross-entropy"' in events


def test_files_that_are_no_images_are_skipped_and_named(learner: Any) -> None:
    """In the reason, with their class folders."""
    broken = picture("red", 9)[:200]
    data = zipped({**RED_BLUE, "red/notes.txt": b"a note", "red/half.png": broken})

    session = run(learner, send(learner, data).json()["id"])

    assert "skipped 2 files: red/half.png (" in session["reason"]
    assert "red/notes.txt (this is not a known image format)" in session["reason"]


def test_a_folder_that_is_allowed_is_learned(start: Callable[..., Any], tmp_path: Path) -> None:
    """By the worker, which reads the same path; a folder elsewhere is refused."""
    folder = folder_of(RED_BLUE, tmp_path / "images" / "birds")
    service = start(base_folders=str(tmp_path / "images"))
    learner = service.learner()

    refused = learner.post("/base", json={"folder": str(tmp_path)})
    answer = learner.post("/base", json={"folder": str(folder)}, params={"epochs": 1})
    (folder / "red" / os.fsdecode(b"caf\xe9.txt")).write_text("a name that is not UTF-8")
    session = run(learner, answer.json()["id"])

    assert "skipped 1 file: red/caf?.txt (" in session["reason"]
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid-folder")
    assert answer.status_code == 202
    assert (session["status"], session["version"]) == ("succeeded", 1)
    assert parts(learner) == 0


def test_a_worker_that_may_not_read_the_folder_says_so(start: Callable[..., Any], tmp_path: Path) -> None:
    """It has a setting of its own; another attempt would not help."""
    folder = folder_of(RED_BLUE, tmp_path / "images")
    service = start(base_folders=str(folder))
    learner = service.learner()
    answer = learner.post("/base", json={"folder": str(folder)})
    service.worker.settings = service.settings.model_copy(update={"base_folders": "/elsewhere"})

    session = run(learner, answer.json()["id"])

    assert (session["status"], session["attempt"]) == ("failed", 1)
    assert "is not inside an allowed folder (/elsewhere)" in session["error"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no zip", "this is not a zip file"),
        (GOOD[: len(GOOD) // 2], "this is not a zip file"),
        (zipped({**RED_BLUE, "../out/0.png": b""}), "leads out of it"),
        (with_entry(RED_BLUE, link("red/all"), b"/"), "is a link"),
        (zipped({**RED_BLUE, "red/inner.zip": GOOD}), "is an archive within the zip"),
        (zipped({"red/0.txt": b"no", "red/1.txt": b"image"}), "'red' has no image that can be read"),
        (zipped(classes(red=1)), "'red' has only one"),
    ],
)
def test_a_zip_that_cannot_be_learned_leaves_nothing(learner: Any, data: bytes, reason: str) -> None:
    """No session, no piece of it, no file."""
    answer = send(learner, data)

    assert answer.status_code == 422
    assert answer.json()["type"] in ("/problems/invalid-zip", "/problems/invalid-folder")
    assert reason in answer.json()["detail"]
    assert (learner.get("/sessions")["items"], parts(learner), left(learner)) == ([], 0, [])


def test_a_second_one_is_refused(learner: Any) -> None:
    """While one waits, and once the model stands on one; a class of the same name is named."""
    learner.taught("red")
    taken = send(learner)
    first = send(learner, zipped(classes(pink=2, grey=2)))
    waiting = send(learner, zipped(classes(black=2)))
    run(learner, first.json()["id"])
    again = send(learner, zipped(classes(black=2)))

    assert (taken.status_code, taken.json()["type"]) == (409, "/problems/name-taken")
    assert (waiting.status_code, waiting.json()["type"]) == (409, "/problems/conflict")
    assert f"session {first.json()['id']} is queued" in waiting.json()["detail"]
    assert again.status_code == 409
    assert "stands on a base session already" in again.json()["detail"]


def test_the_same_request_again_is_answered_as_before(learner: Any) -> None:
    """With its key: also while the session waits, and after it is over. Other content is refused."""
    first = send(learner, Idempotency_Key="birds-1")
    again = send(learner, Idempotency_Key="birds-1")
    other = send(learner, zipped(classes(pink=2)), Idempotency_Key="birds-1")
    run(learner, first.json()["id"])
    after = send(learner, Idempotency_Key="birds-1")

    assert (again.status_code, again.json(), after.json()) == (202, first.json(), first.json())
    assert again.headers["location"] == first.headers["location"]
    assert other.json()["type"] == "/problems/idempotency-key-reused"
    assert len(learner.get("/sessions")["items"]) == 1


def test_bodies_are_bounded_and_typed(start: Callable[..., Any]) -> None:
    """A zip may be larger than other bodies, up to its own bound; what it unpacks to has the same bound."""
    service = start(max_zip_bytes=len(GOOD) + 1000, max_request_bytes=5000)
    learner = service.learner()

    large = send(learner, GOOD + bytes(2000))
    chunked = learner.post("/base", content=iter([GOOD, bytes(2000)]), headers=ZIP)
    typed = learner.post("/base", content=GOOD, headers={"Content-Type": "image/png"})
    elsewhere = learner.post("/predict", content=GOOD, headers={"Content-Type": "multipart/form-data; boundary=x"})
    extra = learner.post("/base", json={"folder": "/data", "epochs": 3})
    fits = send(learner)

    assert len(GOOD) > 5000
    assert [one.status_code for one in (large, chunked, typed, elsewhere, extra)] == [413, 413, 415, 413, 422]
    assert fits.status_code == 202


def test_one_zip_at_a_time(service: Any) -> None:
    """Another is told to come back."""
    with service.context.archives.take():
        answer = send(service.learner())

    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/busy")


def test_a_model_that_does_not_exist_is_not_made(service: Any) -> None:
    """Over HTTP a model is made by its own route, with its backbone."""
    answer = send(service.learner("nowhere"))

    assert answer.status_code == 404


def test_what_was_taught_before_is_kept(learner: Any) -> None:
    """It is learned again by the new network, and the session that waits for it runs afterwards."""
    learner.taught("green", "cyan")
    waiting = learner.get("/sessions")["items"][0]

    session = run(learner, send(learner).json()["id"])
    learner.catch_up()
    refined = run(learner, waiting["id"])

    assert "kept 2 classes taught before" in session["reason"]
    assert set(learner.classes()) == {"green", "cyan", "red", "blue"}
    assert (waiting["kind"], refined["status"]) == ("incremental", "succeeded")


def test_what_no_attempt_can_change_fails_at_once(learner: Any, tmp_path: Path) -> None:
    """A class of the same name was taught while it learned: the caller is told what to do."""
    session_id = send(learner).json()["id"]
    heartbeat = Meanwhile(tmp_path, learner, lambda: learner.teach("red"))

    session = run(learner, session_id, learner.service.make_worker(heartbeat=heartbeat))

    assert (session["status"], session["attempt"]) == ("failed", 1)
    assert "has classes of these names already: 'red'" in session["error"]
    assert parts(learner) == 0
