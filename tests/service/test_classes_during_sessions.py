"""Classes changed many at once, and while a session runs: what is locked and what is seen, on each database."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from learners import refined_version
from store import bank_rows, classes

Draw = Callable[..., bytes]
Until = Callable[[Callable[[], Any], str], None]
Meanwhile = Callable[[Callable[[], object]], Any]


def stored_shots(learner: Any, class_id: int) -> int:
    with learner.service.database.read() as db:
        model_id = learner.service.context.versions.active(learner.name).model_id
        return classes.count_stored_shots(db, model_id, class_id)


def shots_behind(learner: Any, class_id: int) -> int:
    """How many pictures the prototype in force was made from."""
    with learner.service.database.read() as db:
        served = learner.service.context.versions.active(learner.name)
        found = bank_rows.prototype(db, served.model_id, learner.version, class_id)
        assert found is not None
        return found.shots


def test_a_burst_of_classes_becomes_one_session(learner: Any, draw: Draw) -> None:
    """Twenty classes taught from several connections at once: one n-way session refines them all."""
    looks = ["red", "green", "blue", "yellow", "violet", "orange", "cyan"]

    def teach(number: int) -> dict[str, Any]:
        shots = [("shots", ("shot.png", draw(looks[number % 7], number)))]
        answer = learner.post("/classes", data={"name": f"class {number}"}, files=shots)
        assert answer.status_code == 202, answer.text
        return answer.json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(teach, range(20)))
    session = learner.refine()

    assert {answer["session"]["id"] for answer in answers} == {session["id"]}
    assert sorted(answer["version"] for answer in answers) == list(range(1, 21))
    assert session["status"] == "succeeded"
    assert learner.get(f"/versions/{session['version']}")["classes"] == 20
    assert {found["status"] for found in learner.classes().values()} == {"learned"}
    assert len(learner.classes()) == 20
    assert [found["status"] for found in learner.get("/sessions")["items"]] == ["succeeded"]


def test_a_class_taught_while_a_session_runs_is_in_the_next_version(learner: Any, interrupted: Meanwhile) -> None:
    """Seen again by the new network, and refined by the session after."""
    learner.taught("red", "green", "blue")

    session = learner.refine(interrupted(lambda: learner.taught("yellow")))

    assert (session["verdict"], learner.version) == ("promoted", session["version"])
    assert learner.labels("yellow", "red") == ["yellow", "red"]
    statuses = {name: found["status"] for name, found in learner.classes().items()}
    assert statuses == {"red": "learned", "green": "learned", "blue": "learned", "yellow": "provisional"}
    learner.refine()
    assert learner.classes()["yellow"]["status"] == "learned"


def test_a_class_taught_while_the_result_is_prepared_is_in_the_next_version(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was prepared for another head is prepared again."""
    learner.taught("red", "green", "blue")
    plain, late = refined_version.calibrated, ["yellow", "violet"]

    def prepared(*arguments: Any, **options: Any) -> Any:
        if late:
            learner.taught(late.pop())
        return plain(*arguments, **options)

    monkeypatch.setattr(refined_version, "calibrated", prepared)
    session = learner.refine()

    assert session["version"] == learner.version
    assert learner.labels("yellow", "violet", "red") == ["yellow", "violet", "red"]
    assert learner.get(f"/versions/{session['version']}")["classes"] == 5


@pytest.mark.parametrize("learned_before", [False, True], ids=["that waits", "that was learned before"])
def test_shots_shown_while_a_session_runs_are_kept(learner: Any, interrupted: Meanwhile, learned_before: bool) -> None:
    """The refined version knows the class by all its pictures, each counted once, and a session is to come for it."""
    red, *_ = learner.taught("red", "green", "blue")
    if learned_before:
        learner.refine()
        learner.taught("yellow")

    session = learner.refine(interrupted(lambda: learner.show_more(red["id"], "red")))

    assert session["version"] == learner.version
    assert shots_behind(learner, red["id"]) == stored_shots(learner, red["id"]) == 5
    assert learner.classes()["red"] | {"status": "provisional", "shots": 5} == learner.classes()["red"]
    assert learner.labels("red") == ["red"]
    learner.refine()
    assert learner.classes()["red"]["status"] == "learned"
    assert shots_behind(learner, red["id"]) == 5


@pytest.mark.parametrize("learned_before", [False, True], ids=["that waits", "that was learned before"])
def test_a_class_deleted_while_a_session_runs_stays_gone(
    learner: Any, interrupted: Meanwhile, learned_before: bool
) -> None:
    """The refined version does not bring it back."""
    red, *_ = learner.taught("red", "green", "blue")
    if learned_before:
        learner.refine()
        learner.taught("yellow")

    session = learner.refine(interrupted(lambda: learner.delete(red["id"])))

    known = {found["label"] for found in learner.predict("red", top_k=100)["predictions"][0]["top"]}
    assert session["version"] == learner.version
    assert known == {"green", "blue"} | ({"yellow"} if learned_before else set())
    assert learner.get(f"/versions/{learner.version}")["classes"] == len(known)


def test_all_classes_may_be_deleted_while_a_session_runs(learner: Any, interrupted: Meanwhile) -> None:
    """The session ends well, with nothing left to know."""
    taught = learner.taught("red", "green", "blue")

    session = learner.refine(interrupted(lambda: [learner.delete(found["id"]) for found in taught]))

    assert session["status"] == "succeeded"
    assert learner.predict("red")["predictions"][0]["top"] == []


def test_a_name_taught_anew_while_a_session_runs_is_the_new_class(learner: Any, interrupted: Meanwhile) -> None:
    """Deleted and taught again with other pictures: the refined version knows those."""
    red, *_ = learner.taught("red", "green", "blue")

    def taught_anew() -> None:
        learner.delete(red["id"])
        assert learner.teach("yellow", name="red").status_code == 202

    learner.refine(interrupted(taught_anew))

    assert learner.labels("yellow", "green") == ["red", "green"]
    assert learner.classes()["red"]["id"] != red["id"]


def test_a_class_renamed_while_a_session_runs_keeps_its_new_name(learner: Any, interrupted: Meanwhile) -> None:
    """The refined version answers by it."""
    red, *_ = learner.taught("red", "green", "blue")

    session = learner.refine(interrupted(lambda: learner.rename(red["id"], "scarlet")))

    assert session["version"] == learner.version
    assert learner.labels("red") == ["scarlet"]
    assert learner.classes()["scarlet"]["status"] == "learned"


def test_nothing_is_lost_among_many_changes_at_once(learner: Any, interrupted: Meanwhile) -> None:
    """Teaching, renaming, deleting and a session, all at the same time: what each was promised is so."""
    red, green, *_ = learner.taught("red", "green", "blue")
    over = threading.Event()

    def teach_on() -> list[str]:
        names = []
        while not over.is_set() and len(names) < 6:
            names.append(f"yellow {len(names)}")
            assert learner.teach("yellow", name=names[-1]).status_code == 202
        return names

    with ThreadPoolExecutor() as pool:
        teaching = pool.submit(teach_on)
        learner.refine(interrupted(lambda: (learner.delete(green["id"]), learner.rename(red["id"], "scarlet"))))
        over.set()
        names = teaching.result()
    learner.refine()

    known = {found["label"] for found in learner.predict("red", top_k=100)["predictions"][0]["top"]}
    assert known == {"scarlet", "blue", *names} == set(learner.classes())
    assert {found["status"] for found in learner.classes().values()} == {"learned"}
