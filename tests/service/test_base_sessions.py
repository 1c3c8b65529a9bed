"""Base sessions by a worker: published, cancelled, taken over, overtaken, with a model that changes meanwhile."""

from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from store.models import SessionId, SessionRow, ZipPart
from tests.service.base_requests import Meanwhile, left, parts, run, send


def test_a_zip_becomes_a_version(learner: Any) -> None:
    """Queued with its kind and its address; then a version of kind base, which is served; the zip is gone."""
    answer = send(learner)
    queued, stored = answer.json(), parts(learner)

    session = run(learner, queued["id"])
    learner.catch_up()

    version = learner.get(f"/versions/{session['version']}")
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{learner.prefix}/sessions/{queued['id']}"
    assert (queued["status"], queued["kind"], stored) == ("queued", "base", 1)
    assert (session["status"], session["verdict"], session["error"]) == ("succeeded", None, None)
    assert session["reason"].startswith("2 classes from 8 images; ")
    assert session["reason"].endswith(" % of 4 held-out images right")
    assert (version["kind"], version["active"], version["session"]) == ("base", True, session["id"])
    assert {name: found["guarded"] for name, found in learner.classes().items()} == {"blue": True, "red": True}
    assert (parts(learner), left(learner)) == (0, [])


def test_it_can_be_cancelled_while_it_waits_and_while_it_runs(learner: Any, tmp_path: Path) -> None:
    """The zip is gone, nothing was learned, and another may be sent."""
    first = send(learner).json()["id"]
    waiting = learner.post(f"/sessions/{first}/cancel").json()
    second = send(learner, epochs=50).json()["id"]
    heartbeat = Meanwhile(tmp_path, learner, lambda: learner.post(f"/sessions/{second}/cancel"))

    running = run(learner, second, learner.service.make_worker(heartbeat=heartbeat))

    assert (waiting["status"], running["status"]) == ("cancelled", "cancelled")
    assert (parts(learner), left(learner), learner.classes(), learner.version) == (0, [], {}, 0)
    assert send(learner).status_code == 202


def test_a_worker_that_was_lost_is_followed_by_another(learner: Any) -> None:
    """Which begins anew with the same zip."""
    session_id = send(learner).json()["id"]
    lost = learner.service.make_worker()
    lost.settings = learner.service.settings.model_copy(update={"lease_seconds": 0.000001})
    assert lost._claim(session_id) is not None  # and then its machine is gone

    session = run(learner, session_id)

    assert (session["status"], session["attempt"]) == ("succeeded", 2)
    assert set(learner.classes()) == {"red", "blue"}


def test_an_attempt_that_was_overtaken_writes_nothing(learner: Any, tmp_path: Path) -> None:
    """The other one will publish; this one finds itself outdated."""
    session_id = send(learner, epochs=50).json()["id"]

    def overtake() -> None:
        with learner.service.database.write() as db:
            db.get_one(SessionRow, session_id).attempt += 1

    session = run(learner, session_id, learner.service.make_worker(heartbeat=Meanwhile(tmp_path, learner, overtake)))

    assert (session["status"], session["version"], learner.version) == ("running", None, 0)
    assert parts(learner) == 1


def test_a_model_that_is_deleted_meanwhile_does_not_come_back(learner: Any, tmp_path: Path) -> None:
    """Although a base session by the command line would make it."""
    service = learner.service
    session_id = send(learner, epochs=50).json()["id"]
    heartbeat = Meanwhile(tmp_path, learner, lambda: service.http.delete(f"/models/{learner.name}"))

    assert service.make_worker(heartbeat=heartbeat).run_next(SessionId(session_id))

    assert heartbeat.done
    assert service.http.get(f"/models/{learner.name}").status_code == 404
    with service.database.read() as db:
        assert db.get(SessionRow, session_id) is None
        assert db.execute(select(func.count()).where(ZipPart.session_id == session_id)).scalar_one() == 0
