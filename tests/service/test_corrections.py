"""Corrections: a shot is deleted or moved, a class is merged; each makes one version, and nothing taught is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from store import catalogue, classes

Draw = Callable[..., bytes]
Meanwhile = Callable[[Callable[[], object]], Any]


def shots(learner: Any, class_id: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = learner.get(f"/classes/{class_id}/shots")["items"]
    return found


def move(learner: Any, class_id: int, shot: int, **where: Any) -> Any:
    return learner.post(f"/classes/{class_id}/shots/{shot}/move", json=where)


def merge(learner: Any, class_id: int, into: int) -> Any:
    return learner.post(f"/classes/{class_id}/merge", json={"into": into})


def distances(learner: Any, look: str, **params: Any) -> dict[str, float]:
    return {one["label"]: one["distance"] for one in learner.predict(look, **params)["predictions"][0]["top"]}


def stray(learner: Any, look: str, among: str) -> tuple[int, int]:
    """A class of three shots of one look and one of another; returns its id and the id of the stray shot."""
    (own,) = learner.taught(among)
    learner.show_more(own["id"], look, range(1))
    return own["id"], shots(learner, own["id"])[-1]["id"]


def test_deleting_a_shot_makes_the_class_as_if_it_had_never_been(learner: Any) -> None:
    """One version; the class waits for a session again, and an old version still answers as it did."""
    learner.taught("green")
    before = learner.taught("red")[0]
    clean = distances(learner, "red")
    learner.show_more(before["id"], "blue", range(1))
    spoilt, version = distances(learner, "red"), learner.version
    shot = shots(learner, before["id"])[-1]

    answer = learner.ask("DELETE", f"/classes/{before['id']}/shots/{shot['id']}")

    body = answer.json()
    assert (answer.status_code, body["version"]) == (202, version + 1)
    assert body["class"] | {"id": before["id"], "shots": 3, "status": "provisional"} == body["class"]
    assert answer.headers["location"] == f"{learner.prefix}/sessions/{body['session']['id']}"
    assert distances(learner, "red") == pytest.approx(clean, abs=1e-5)
    assert distances(learner, "red", version=version) == spoilt != clean
    assert [one["id"] for one in shots(learner, before["id"])] == list(range(shot["id"] - 3, shot["id"]))


def test_the_last_shot_is_not_deleted(learner: Any, draw: Draw) -> None:
    """The refusal says what to do instead."""
    files = [("shots", ("a.png", draw("red"), "image/png"))]
    only = learner.post("/classes", data={"name": "red"}, files=files).json()["class"]
    (shot,) = shots(learner, only["id"])
    learner.taught("green")

    deleted = learner.ask("DELETE", f"/classes/{only['id']}/shots/{shot['id']}")
    moved = move(learner, only["id"], shot["id"], to=2)

    assert (deleted.status_code, moved.status_code) == (409, 409)
    assert "delete the class instead" in deleted.json()["detail"]
    assert "merge the class" in moved.json()["detail"]


def test_a_shot_moves_to_another_class(learner: Any) -> None:
    """Both classes are as their shots say, in one version; the shot keeps its id, its name and its time."""
    (blue,) = learner.taught("blue")
    red, shot = stray(learner, "blue", among="red")
    version, before = learner.version, shots(learner, red)[-1]

    body = move(learner, red, shot, to=blue["id"]).json()

    assert body["version"] == learner.version == version + 1
    assert (body["class"]["id"], body["class"]["shots"]) == (blue["id"], 4)
    assert [len(shots(learner, own)) for own in (red, blue["id"])] == [3, 4]
    after = shots(learner, blue["id"])[-1]
    assert [after[name] for name in ("id", "filename", "created_at")] == [
        before[name] for name in ("id", "filename", "created_at")
    ]
    assert {one["status"] for one in learner.classes().values()} == {"provisional"}
    assert learner.labels("red", "blue") == ["red", "blue"]


def test_a_shot_becomes_a_class_of_its_own(learner: Any) -> None:
    """With a name that is free; it is served at once."""
    red, shot = stray(learner, "blue", among="red")

    taken = move(learner, red, shot, to_new="red")
    body = move(learner, red, shot, to_new="blue").json()

    assert (taken.status_code, taken.json()["type"]) == (409, "/problems/name-taken")
    assert (body["class"]["name"], body["class"]["shots"], body["class"]["since"]) == ("blue", 1, learner.version)
    assert body["class"]["cover"] == shot
    assert distances(learner, "blue")["blue"] < distances(learner, "blue")["red"]


def test_merging_makes_one_class_of_two(learner: Any, draw: Draw) -> None:
    """In one version: the other has all shots, this one is gone, and its name is free."""
    crimson = learner.teach("red", "crimson").json()["class"]
    learner.taught("green")
    files = [("shots", (f"{number}.png", draw("red", number), "image/png")) for number in range(3, 6)]
    red = learner.post("/classes", data={"name": "red"}, files=files).json()["class"]
    version = learner.version

    body = merge(learner, crimson["id"], red["id"]).json()

    assert body["version"] == learner.version == version + 1
    assert (body["class"]["id"], body["class"]["shots"]) == (red["id"], 6)
    assert sorted(learner.classes()) == ["green", "red"]
    assert "crimson" not in distances(learner, "red")
    assert "crimson" in distances(learner, "red", version=version)
    assert len(shots(learner, red["id"])) == 6
    assert learner.teach("blue", "crimson").status_code == 202


def test_a_session_refines_what_was_corrected(learner: Any) -> None:
    """It learns from the shots as they are now."""
    (blue,) = learner.taught("blue")
    red, shot = stray(learner, "blue", among="red")
    learner.refine()
    assert {one["status"] for one in learner.classes().values()} == {"learned"}
    move(learner, red, shot, to=blue["id"])

    session = learner.refine()

    assert (session["status"], session["verdict"]) == ("succeeded", "promoted")
    assert {one["status"] for one in learner.classes().values()} == {"learned"}
    assert learner.labels("red", "blue") == ["red", "blue"]


def test_a_correction_during_a_session_is_not_lost(learner: Any, interrupted: Meanwhile) -> None:
    """The session's result takes it in, and the classes wait for another session."""
    (blue,) = learner.taught("blue")
    red, shot = stray(learner, "blue", among="red")

    learner.refine(interrupted(lambda: move(learner, red, shot, to=blue["id"]).raise_for_status()))

    assert [len(shots(learner, own)) for own in (red, blue["id"])] == [3, 4]
    assert {one["status"] for one in learner.classes().values()} == {"provisional"}
    assert learner.labels("red", "blue") == ["red", "blue"]
    assert learner.refine()["status"] == "succeeded"
    assert {one["status"] for one in learner.classes().values()} == {"learned"}


def test_guard_images_stay(learner: Any, draw: Draw) -> None:
    """They are neither deleted nor moved; a merge takes them along."""
    red, green = learner.taught("red", "green")
    with learner.service.database.write() as db:
        classes.add_guard(db, catalogue.get(db, learner.name).id, red["id"], [draw("red", 9)])
    guard = shots(learner, red["id"])[-1]

    refusals = [
        learner.ask("DELETE", f"/classes/{red['id']}/shots/{guard['id']}"),
        move(learner, red["id"], guard["id"], to=green["id"]),
    ]
    merge(learner, red["id"], green["id"])

    assert [one.status_code for one in refusals] == [409, 409]
    assert all("guard image" in one.json()["detail"] for one in refusals)
    assert shots(learner, green["id"])[-1] == guard


def test_a_base_class_keeps_what_is_not_stored(learner: Any) -> None:
    """Deleting a shot takes away its part of the prototype and nothing else."""
    learner.taught("green")
    (red,) = learner.taught("red")
    with learner.service.database.write() as db:  # as a base session would have left it: nothing is stored
        model_id = catalogue.get(db, learner.name).id
        for key in classes.shot_keys(db, model_id, red["id"]):
            classes.delete_shot(db, model_id, key)
    before = distances(learner, "red")
    learner.show_more(red["id"], "blue", range(1))
    (shot,) = shots(learner, red["id"])

    answer = learner.ask("DELETE", f"/classes/{red['id']}/shots/{shot['id']}")

    assert answer.status_code == 202
    assert (answer.json()["class"]["shots"], answer.json()["class"]["guarded"]) == (3, True)
    assert distances(learner, "red") == pytest.approx(before, abs=1e-5)


@pytest.mark.parametrize(
    ("where", "status"), [({}, 422), ({"to": 2, "to_new": "x"}, 422), ({"to": 99}, 404), ({"to": 1}, 409)]
)
def test_a_move_to_nowhere_is_refused(learner: Any, where: dict[str, Any], status: int) -> None:
    """And nothing changes."""
    learner.taught("red", "green")
    version, shot = learner.version, shots(learner, 1)[0]["id"]

    assert move(learner, 1, shot, **where).status_code == status
    assert learner.version == version


def test_what_does_not_exist_is_not_corrected(learner: Any) -> None:
    """A class cannot be merged into itself either."""
    red, green = learner.taught("red", "green")
    other = shots(learner, green["id"])[0]["id"]

    assert learner.ask("DELETE", f"/classes/{red['id']}/shots/{other}").status_code == 404
    assert learner.ask("DELETE", f"/classes/{red['id']}/shots/999").status_code == 404
    assert merge(learner, 99, red["id"]).status_code == 404
    assert merge(learner, red["id"], 99).status_code == 404
    assert merge(learner, red["id"], red["id"]).status_code == 409


def test_a_class_takes_no_more_shots_than_allowed(start: Any) -> None:
    """Neither by a move nor by a merge."""
    learner = start(max_shots=3).learner()
    red, green = learner.taught("red", "green")

    answers = [move(learner, red["id"], shots(learner, red["id"])[0]["id"], to=green["id"]), merge(learner, 1, 2)]

    assert {(one.status_code, one.json()["type"]) for one in answers} == {(409, "/problems/limit-reached")}
