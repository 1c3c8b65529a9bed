"""`/classes`: a class is servable when the answer arrives, and nothing that was taught is lost."""

from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from store import bank_rows, classes
from tests import bombs

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


# Teaching


def test_a_class_is_servable_when_the_answer_arrives(learner: Any) -> None:
    """No session has run, and the class is predicted already."""
    learner.taught("green")

    answer = learner.teach("red")

    body = answer.json()
    assert answer.status_code == 202
    assert body["class"] | {"name": "red", "status": "provisional", "shots": 3, "served": True} == body["class"]
    assert body["session"]["status"] == "queued"
    assert answer.headers["location"] == f"{learner.prefix}/sessions/{body['session']['id']}"
    assert learner.predict("red")["version"] == body["version"] == body["class"]["since"]
    assert learner.labels("red", "green") == ["red", "green"]


def test_json_teaches_the_same_as_a_form(learner: Any, draw: Draw) -> None:
    """The same pictures in base64 make the very same prototype."""
    learner.taught("red", "green")
    pictures = [b64encode(draw("red", number)).decode() for number in range(3)]

    answer = learner.post("/classes", json={"name": "red again", "shots": pictures})

    assert answer.status_code == 202
    top = {found["label"]: found["distance"] for found in learner.predict("red")["predictions"][0]["top"]}
    assert top["red again"] == top["red"] < top["green"]


def test_a_costly_shot_is_stored_with_a_small_form_of_itself(learner: Any, draw: Draw) -> None:
    """Nobody decodes it again: neither a session nor the next shots of the class."""
    shots = [("shots", ("a.png", bombs.png_flat((3_200, 3_200)))), ("shots", ("b.png", draw("red")))]
    first = learner.post("/classes", data={"name": "red"}, files=shots).json()["class"]

    answer = learner.post(f"/classes/{first['id']}/shots", files=[("shots", ("c.png", draw("red", 2)))])

    assert answer.status_code == 202
    with learner.service.database.read() as db:
        model_id = learner.service.context.versions.active(learner.name).model_id
        stored = classes.shots_of(db, model_id, [first["id"]])
    assert [picture.scaled is not None for picture in stored] == [True, False, False]


def test_bad_pictures_are_named_and_nothing_is_stored(learner: Any, draw: Draw) -> None:
    """One picture that cannot be read undoes the whole request, and each bad one is told apart."""
    good = draw("red")
    files = {"a.png": good, "b.png": b"this is no picture", "c.png": good, "d.png": b""}
    shots = [("shots", part) for part in files.items()]

    answer = learner.post("/classes", data={"name": "red"}, files=shots)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [(found["index"], found["filename"]) for found in answer.json()["images"]] == [(1, "b.png"), (3, "d.png")]
    assert all(found["reason"] for found in answer.json()["images"])
    assert learner.get("/classes")["items"] == []
    assert learner.get("/sessions")["items"] == []
    assert learner.version == 0


def test_a_name_is_given_once(learner: Any) -> None:
    """The answer says whose it is, and nothing is stored."""
    (red,) = learner.taught("red")

    answer = learner.teach("green", name=" red ")

    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/name-taken"
    assert f"class {red['id']}" in answer.json()["detail"]
    assert [found["id"] for found in learner.get("/classes")["items"]] == [red["id"]]


def test_a_model_takes_only_so_many_classes_and_shots(start: Callable[..., Any]) -> None:
    """Beyond a limit the answer is 409, and deleting something helps."""
    learner = start(max_classes=1, max_shots=4).learner()
    (red,) = learner.taught("red")

    too_many_classes = learner.teach("green")
    too_many_shots = learner.show_more(red["id"], "red")

    assert [too_many_classes.status_code, too_many_shots.status_code] == [409, 409]
    assert too_many_classes.json()["type"] == too_many_shots.json()["type"] == "/problems/limit-reached"
    learner.delete(red["id"])
    assert learner.teach("green").status_code == 202


def test_one_who_waits_hears_of_the_refined_class(learner: Any, until: Until) -> None:
    """`Prefer: wait` holds the answer back until the session is over, and then says what came of it."""
    learner.taught("red", "green")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(learner.teach, "blue", Prefer="wait=60")
        until(lambda: "blue" in learner.classes(), "the class is taught")
        learner.service.worker.run_next()
        answer = asked.result()

    body = answer.json()
    assert answer.status_code == 201
    assert answer.headers["preference-applied"] == "wait=60"
    assert body["class"]["status"] == "learned"
    assert body["session"]["status"] == "succeeded"
    assert body["version"] == body["session"]["version"] == learner.predict("red")["version"]


def test_one_who_waits_for_a_session_that_is_cancelled_is_told_that_it_is_only_taught(
    learner: Any, until: Until
) -> None:
    """201 is for a class that was refined."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(learner.teach, "blue", Prefer="wait=60")
        until(lambda: learner.get("/sessions")["items"], "a session is queued")
        learner.post(f"/sessions/{learner.get('/sessions')['items'][0]['id']}/cancel").raise_for_status()
        answer = asked.result(60)

    assert answer.status_code == 202
    assert answer.json()["session"]["status"] == "cancelled"


def test_one_who_does_not_wait_long_enough_is_told_that_it_is_taught(learner: Any) -> None:
    """The class is there all the same; only its refinement is not."""
    answer = learner.teach("red", Prefer="respond-async, wait=1")

    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=1"
    assert answer.json()["class"]["status"] == "provisional"


def test_a_full_queue_refuses_teaching_and_predicting_alike(
    start: Callable[..., Any], until: Until, draw: Draw
) -> None:
    """503 and when to come back, before a picture is so much as looked at; what had been accepted is done."""
    service = start(queue_images=1)
    learner = service.learner()
    with ThreadPoolExecutor() as pool:
        with service.held_up():
            accepted = pool.submit(learner.predict, "red")
            until(lambda: service.context.predictor.queued == 1, "a picture waits")
            refused = [learner.teach("red")]
            refused += [learner.post("/predict", files={"images": sent}) for sent in (draw("red"), b"no picture")]
        assert accepted.result()["predictions"]

    assert [answer.status_code for answer in refused] == [503, 503, 503]
    assert {answer.json()["type"] for answer in refused} == {"/problems/overloaded"}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert learner.get("/classes")["items"] == []


# Idempotency keys


def test_the_same_key_again_gets_the_same_answer(learner: Any) -> None:
    """And no second class, whatever happened to the first one since."""
    first = learner.teach("red", Idempotency_Key="a")
    learner.rename(first.json()["class"]["id"], "scarlet")

    second = learner.teach("red", Idempotency_Key="a")

    assert (second.status_code, second.json()) == (first.status_code, first.json())
    assert second.headers["location"] == first.headers["location"]
    assert list(learner.classes()) == ["scarlet"]


def test_shots_are_not_added_twice_under_one_key(learner: Any) -> None:
    """A repeated request for more shots is answered and not repeated."""
    (red,) = learner.taught("red")
    first = learner.show_more(red["id"], "red", Idempotency_Key="a")

    second = learner.show_more(red["id"], "red", Idempotency_Key="a")

    assert second.json() == first.json()
    assert stored_shots(learner, red["id"]) == learner.classes()["red"]["shots"] == 5


@pytest.mark.parametrize("other", ["name", "pictures", "route"])
def test_a_key_belongs_to_one_request(learner: Any, other: str) -> None:
    """The same key with anything else is an error of the caller's, and nothing is done."""
    red = learner.teach("red", Idempotency_Key="a").json()["class"]

    if other == "name":
        answer = learner.teach("red", name="scarlet", Idempotency_Key="a")
    elif other == "pictures":
        answer = learner.teach("green", name="red", Idempotency_Key="a")
    else:
        answer = learner.show_more(red["id"], "red", range(3), Idempotency_Key="a")

    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/idempotency-key-reused"
    assert list(learner.classes()) == ["red"]
    assert learner.classes()["red"]["shots"] == 3


def test_a_key_whose_request_is_in_flight_is_refused_for_now(learner: Any, until: Until) -> None:
    """Nobody waits for somebody else's request; the first is done once."""
    with ThreadPoolExecutor() as pool:
        with learner.service.held_up():
            first = pool.submit(learner.teach, "red", Idempotency_Key="a")
            until(lambda: learner.service.context.predictor.queued, "the first is in flight")
            second = learner.teach("red", Idempotency_Key="a")
        done = first.result()

    assert second.status_code == 409
    assert second.json()["type"] == "/problems/idempotency-key-in-flight"
    assert second.headers["retry-after"] == "1"
    assert done.status_code == 202
    assert learner.teach("red", Idempotency_Key="a").json() == done.json()


def test_a_key_that_is_answered_while_its_repetition_looks_it_up_gets_the_same_answer(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica may finish between the look for an earlier answer and the work itself."""
    changes = learner.service.context.teacher.teaching
    looked_up, answers = changes.recall, []

    def late(*arguments: Any) -> Any:
        found = looked_up(*arguments)
        if not answers:
            answers.append(None)  # the request below comes here too, and is not to be held up
            answers[0] = learner.teach("red", Idempotency_Key="a")
        return found

    monkeypatch.setattr(changes, "recall", late)
    second = learner.teach("red", Idempotency_Key="a")

    assert answers[0].status_code == 202
    assert (second.status_code, second.json()) == (202, answers[0].json())


# Looking at classes


def test_classes_come_in_pages(learner: Any) -> None:
    """Following `next` shows every class once, in the order in which they were taught."""
    names = ["red", "green", "blue", "yellow", "violet"]
    learner.taught(*names)

    pages = [learner.get("/classes", limit=2)]
    while pages[-1]["next"] is not None:
        pages.append(learner.get("/classes", limit=2, cursor=pages[-1]["next"]))

    assert [[found["name"] for found in page["items"]] for page in pages] == [names[:2], names[2:4], names[4:]]


@pytest.mark.parametrize("query", ["cursor=red", "cursor=-1", "cursor=99999999999", "limit=0", "limit=501"])
@pytest.mark.parametrize("resource", ["classes", "sessions", "versions"])
def test_a_page_that_cannot_be_is_refused(learner: Any, resource: str, query: str) -> None:
    """422 says which parameter is at fault."""
    answer = learner.ask("GET", f"/{resource}?{query}")

    assert answer.status_code == 422
    assert query.partition("=")[0] in answer.json()["detail"]


def test_a_class_can_be_shown(learner: Any) -> None:
    """As it is listed; a class of that number in another model is another class."""
    (red,) = learner.taught("red")

    assert learner.get(f"/classes/{red['id']}") == red == learner.classes()["red"]
    assert learner.ask("GET", f"/classes/{red['id'] + 1}").status_code == 404


# Renaming and deleting


def test_renaming_changes_the_label_and_makes_no_version(learner: Any) -> None:
    """The answer after it has the new name, in every version; the old name is free."""
    (red,) = learner.taught("red")
    before = learner.version
    learner.taught("green")

    renamed = learner.rename(red["id"], "  scarlet ")

    assert renamed == red | {"name": "scarlet"}
    assert learner.version == before + 1
    assert learner.labels("red") == learner.labels("red", version=before) == ["scarlet"]
    assert learner.teach("orange", name="red").status_code == 202


@pytest.mark.parametrize(("name", "status"), [("green", 409), ("", 422), ("a\nb", 422), ("x" * 201, 422)])
def test_a_name_that_cannot_be_had_leaves_the_old_one(learner: Any, name: str, status: int) -> None:
    """Taken, empty, with line breaks or too long."""
    red, _ = learner.taught("red", "green")

    answer = learner.ask("PATCH", f"/classes/{red['id']}", json={"name": name})

    assert answer.status_code == status
    assert learner.get(f"/classes/{red['id']}") == red


def test_a_deleted_class_is_gone_with_its_pictures(learner: Any) -> None:
    """No prediction, no list and no shot is left of it; its name is free, its number is not given again."""
    red, _green = learner.taught("red", "green")

    learner.delete(red["id"])

    assert learner.ask("GET", f"/classes/{red['id']}").status_code == 404
    assert learner.ask("DELETE", f"/classes/{red['id']}").status_code == 404
    assert list(learner.classes()) == ["green"]
    assert stored_shots(learner, red["id"]) == 0
    assert [found["label"] for found in learner.predict("red")["predictions"][0]["top"]] == ["green"]
    assert learner.get(f"/versions/{learner.version}")["kind"] == "delete"
    (again,) = learner.taught("red")
    assert again["id"] > red["id"]


# More shots


def test_more_shots_sharpen_a_class_and_it_waits_for_a_session_again(learner: Any) -> None:
    """A class that was learned is provisional once more, with all its pictures behind it."""
    red, *_ = learner.taught("red", "green", "blue")
    learner.refine()
    before = learner.predict("red")["predictions"]

    answer = learner.show_more(red["id"], "red")

    assert answer.status_code == 202
    found = answer.json()["class"]
    assert found == red | {"status": "provisional", "shots": 5, "accuracy": found["accuracy"]}
    assert found["accuracy"]["images"] == 5
    assert answer.json()["session"]["status"] == "queued"
    assert shots_behind(learner, red["id"]) == stored_shots(learner, red["id"]) == 5
    assert learner.predict("red")["predictions"] != before
    assert learner.labels("red") == ["red"]


def test_more_shots_equal_teaching_all_at_once(learner: Any, draw: Draw) -> None:
    """One picture and two later are the same class as three."""
    shots = [("shots", ("shot.png", draw("red", 0)))]
    few = learner.post("/classes", data={"name": "few"}, files=shots).json()["class"]
    learner.show_more(few["id"], "red", range(1, 3))

    learner.teach("red", name="all")

    near, next_to_it = learner.predict("red")["predictions"][0]["top"]
    assert near["distance"] == pytest.approx(next_to_it["distance"], abs=2e-6)


@pytest.mark.parametrize("later", [False, True], ids=["taught with it", "shown later"])
def test_a_shot_far_from_its_siblings_is_reported(learner: Any, draw: Draw, later: bool) -> None:
    """By its place among the pictures of this request and its file name; it counts all the same."""
    shots = [("shots", (f"{number}.png", draw("red", number))) for number in range(200, 204)]
    stranger = [("shots", ("fine.png", draw("red", 3))), ("shots", ("odd.png", draw("stripes")))]
    if later:
        red = learner.post("/classes", data={"name": "red"}, files=shots).json()["class"]
        answer = learner.post(f"/classes/{red['id']}/shots", files=stranger)
    else:
        answer = learner.post("/classes", data={"name": "red"}, files=[*shots, *stranger])

    (outlier,) = answer.json()["outliers"]
    assert answer.status_code == 202
    assert (outlier["index"], outlier["filename"]) == (1 if later else 5, "odd.png")
    assert outlier["distance"] > 0
    assert "far from the others" in outlier["message"]
    assert answer.json()["class"]["shots"] == 6


def test_more_shots_of_a_class_that_is_not_there_are_refused(learner: Any) -> None:
    """404, and the pictures are not kept."""
    answer = learner.show_more(7, "red")

    assert answer.status_code == 404
    assert stored_shots(learner, 7) == 0


def test_a_bad_picture_among_more_shots_is_named_and_none_is_kept(learner: Any, draw: Draw) -> None:
    """As in teaching."""
    (red,) = learner.taught("red")
    files = [("shots", ("good.png", draw("red", 9))), ("shots", ("bad.png", b"GIF89a"))]

    answer = learner.post(f"/classes/{red['id']}/shots", files=files)

    assert answer.status_code == 422
    assert [(found["index"], found["filename"]) for found in answer.json()["images"]] == [(1, "bad.png")]
    assert learner.get(f"/classes/{red['id']}") == red
