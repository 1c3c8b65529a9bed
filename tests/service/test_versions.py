"""`/versions`: history that can be looked at, pinned and put in force again, exactly as it was."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core.guard import Measured, Verdict
from tests.service.conftest import QUICK

Draw = Callable[..., bytes]


def worse(before: Measured, after: Measured) -> Verdict:
    return Verdict(False, "worse than before", before.accuracy, after.accuracy)


def a_picture(draw: Draw) -> dict[str, bytes]:
    return {"images": draw("red")}


def history(learner: Any) -> list[tuple[Any, ...]]:
    """Number, parent, kind and classes, oldest first."""
    fields = ("number", "parent", "kind", "classes")
    return [tuple(found[name] for name in fields) for found in reversed(learner.get("/versions")["items"])]


def test_every_change_is_a_version_with_a_parent(learner: Any) -> None:
    """Untaught, taught, refined, deleted from, rolled back: one history, numbered as it happened."""
    red, *_ = learner.taught("red", "green", "blue")
    learner.refine()
    learner.delete(red["id"])
    learner.activate(3)

    assert history(learner) == [
        (0, None, "base", 0),
        (1, 0, "provisional", 1),
        (2, 1, "provisional", 2),
        (3, 2, "provisional", 3),
        (4, 3, "incremental", 3),
        (5, 4, "delete", 2),
        (6, 3, "rollback", 2),
    ]
    assert [found["active"] for found in learner.get("/versions")["items"]] == [True] + 6 * [False]


def test_versions_come_in_pages_newest_first(learner: Any) -> None:
    """Following `next` shows every version once."""
    learner.taught("red", "green", "blue", "yellow")

    pages = [learner.get("/versions", limit=2)]
    while pages[-1]["next"] is not None:
        pages.append(learner.get("/versions", limit=2, cursor=pages[-1]["next"]))

    assert [[found["number"] for found in page["items"]] for page in pages] == [[4, 3], [2, 1], [0]]


def test_a_version_is_shown_as_it_is_listed(learner: Any) -> None:
    """And one that does not exist is a 404 that says which is the newest."""
    learner.taught("red")

    missing = learner.ask("GET", "/versions/7")

    assert learner.get("/versions/1") == learner.get("/versions")["items"][0]
    assert missing.status_code == 404
    assert missing.json()["detail"] == "version 7 does not exist; the newest is 1"


def test_an_activated_version_answers_exactly_as_it_did(learner: Any) -> None:
    """Back to before a refinement, forward to after it: every number of every answer is what it was."""
    learner.taught("red", "green", "blue")
    looks = ("red", "green", "blue", "yellow", "stripes")
    before = learner.predict_one_by_one(*looks)
    learner.refine()
    after = learner.predict_one_by_one(*looks)
    learner.taught("yellow")

    back = learner.activate(before["version"])
    answers_back = learner.predict_one_by_one(*looks)
    forward = learner.activate(after["version"])
    answers_forward = learner.predict_one_by_one(*looks)

    assert (back["number"], back["active"]) == (before["version"], True)
    assert (forward["number"], forward["active"]) == (after["version"], True)
    assert answers_back == before
    assert answers_forward == after
    assert before["predictions"] != after["predictions"]


def test_classes_taught_later_are_listed_as_not_served(learner: Any) -> None:
    """After rolling back to before them they are there, wait, and come back with rolling forward."""
    learner.taught("red")
    early = learner.version
    learner.taught("green")
    late = learner.version

    learner.activate(early)

    served = {name: found["served"] for name, found in learner.classes().items()}
    assert served == {"red": True, "green": False}
    assert [found["label"] for found in learner.predict("green")["predictions"][0]["top"]] == ["red"]
    learner.activate(late)
    assert {found["served"] for found in learner.classes().values()} == {True}
    assert learner.labels("green") == ["green"]


def test_what_was_deleted_does_not_come_back(learner: Any) -> None:
    """Rolling back to a version that knew it makes one without it, of kind rollback."""
    red, green = learner.taught("red", "green")
    both = learner.version
    learner.delete(red["id"])

    rolled_back = learner.activate(both)

    assert (rolled_back["kind"], rolled_back["parent"], rolled_back["active"]) == ("rollback", both, True)
    assert rolled_back["details"]["without"] == [red["id"]]
    assert [found["class_id"] for found in learner.predict("red")["predictions"][0]["top"]] == [green["id"]]
    assert list(learner.classes()) == ["green"]


def test_teaching_goes_on_from_a_version_rolled_back_to(learner: Any) -> None:
    """New classes, more shots and sessions stand on it; what was taught on the other branch stays there."""
    red, *_ = learner.taught("red", "green", "blue")
    early = learner.version
    learner.taught("yellow")
    learner.activate(early)

    learner.taught("violet")
    learner.show_more(red["id"], "red")
    session = learner.refine()

    known = {found["label"] for found in learner.predict("red", top_k=100)["predictions"][0]["top"]}
    assert known == {"red", "green", "blue", "violet"}
    assert learner.labels("violet", "red") == ["violet", "red"]
    assert (session["verdict"], learner.get(f"/versions/{learner.version}")["classes"]) == ("promoted", 4)
    assert learner.classes()["yellow"] | {"served": False, "status": "provisional"} == learner.classes()["yellow"]


def test_a_class_of_another_branch_can_be_shown_more_and_is_served_again(learner: Any) -> None:
    """Its stored shots are still there: with one more they make the class anew on the version in force."""
    learner.taught("red")
    early = learner.version
    (green,) = learner.taught("green")
    learner.activate(early)

    answer = learner.show_more(green["id"], "green", range(3, 4))

    assert answer.json()["class"] | {"shots": 4, "served": True} == answer.json()["class"]
    assert learner.labels("green", "red") == ["green", "red"]


def test_classes_whose_session_found_another_head_get_one_when_they_are_served_again(learner: Any) -> None:
    """Rolled back, their session finds nothing to refine; rolled forward, they must not wait for ever."""
    learner.taught("red", "green", "blue")
    late = learner.version
    learner.activate(0)
    nothing = learner.refine()

    learner.activate(late)
    session = learner.refine()

    assert (nothing["status"], nothing["verdict"]) == ("succeeded", None)
    assert (session["status"], session["verdict"]) == ("succeeded", "promoted")
    assert {found["status"] for found in learner.classes().values()} == {"learned"}


def test_activating_a_version_whose_classes_are_learned_queues_no_session(learner: Any) -> None:
    """There is nothing to refine."""
    learner.taught("red", "green", "blue")
    learner.refine()

    learner.activate(3)

    assert [found["status"] for found in learner.get("/sessions")["items"]] == ["succeeded"]


STRICT = replace(QUICK, judge=worse)  # a gate that nothing passes


def test_a_rejected_version_is_listed_and_never_served(learner: Any, draw: Draw) -> None:
    """Neither by itself nor when somebody asks for it; the classes stay as they were taught."""
    learner.taught("red", "green", "blue")
    before = learner.predict_one_by_one("red", "green", "blue")
    session = learner.refine(learner.service.make_worker(STRICT))

    number = session["version"]
    listed = learner.get(f"/versions/{number}")
    refused = [
        learner.post(f"/versions/{number}/activate"),
        learner.post(f"/predict?version={number}", files=a_picture(draw)),
    ]
    assert (session["status"], session["verdict"]) == ("succeeded", "rejected")
    assert (listed["verdict"], listed["active"], listed["kept"]) == ("rejected", False, False)
    assert session["reason"] == listed["details"]["reason"] == "worse than before"
    assert [answer.status_code for answer in refused] == [409, 409]
    assert "rejected by the gate" in refused[0].json()["detail"]
    assert learner.predict_one_by_one("red", "green", "blue") == before


def test_teaching_goes_on_after_a_rejection(learner: Any) -> None:
    """The next version does not stand on the rejected one, and its session is judged by itself."""
    learner.taught("red", "green", "blue")
    head = learner.version
    rejected = learner.refine(learner.service.make_worker(STRICT))["version"]

    learner.taught("yellow")
    session = learner.refine()

    assert learner.get(f"/versions/{rejected + 1}")["parent"] == head
    assert session["verdict"] == "promoted"
    assert learner.labels("yellow", "red") == ["yellow", "red"]


def test_only_so_many_refined_versions_are_kept(start: Callable[..., Any], draw: Draw) -> None:
    """Older ones are history: listed, and neither pinned nor activated any more."""
    learner = start(keep_versions=1).learner()
    learner.taught("red", "green", "blue")
    old = learner.refine()["version"]
    learner.taught("yellow")
    learner.refine()

    refused = [
        learner.post(f"/versions/{old}/activate"),
        learner.post(f"/predict?version={old}", files=a_picture(draw)),
    ]

    assert learner.get(f"/versions/{old}")["kept"] is False
    assert [answer.status_code for answer in refused] == [409, 409]
    assert "PROTOQUAD_KEEP_VERSIONS" in refused[0].json()["detail"]
    assert learner.get("/versions/3")["kept"] is True
    assert learner.labels("yellow", "red") == ["yellow", "red"]


def test_a_version_that_does_not_exist_cannot_be_activated(learner: Any) -> None:
    """404, and what is served stays."""
    learner.taught("red")

    answer = learner.post("/versions/9/activate")

    assert answer.status_code == 404
    assert learner.version == 1
