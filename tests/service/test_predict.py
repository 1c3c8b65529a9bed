"""`/predict`: images in, labels out, by exactly one version."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from engine.version_cache import PINNED
from service.schemas import PredictionsBody

Draw = Callable[..., bytes]


def test_each_image_gets_its_answer(learner: Any) -> None:
    """Label, class and confidence of the nearest, and the nearest classes in order, for images in their order."""
    red, green, blue = learner.taught("red", "green", "blue")

    answer = learner.predict("blue", "red", "green")

    assert (answer["model"], answer["version"]) == (learner.name, learner.version)
    assert [found["label"] for found in answer["predictions"]] == ["blue", "red", "green"]
    assert [found["class_id"] for found in answer["predictions"]] == [blue["id"], red["id"], green["id"]]
    for found in answer["predictions"]:
        nearest, *others = found["top"]
        assert found["unknown"] is False
        assert (nearest["label"], nearest["confidence"]) == (found["label"], found["confidence"])
        assert sorted(one["distance"] for one in found["top"]) == [one["distance"] for one in found["top"]]
        assert sum(one["confidence"] for one in found["top"]) == pytest.approx(1, abs=1e-5)
        assert len(others) == 2


def test_json_is_answered_as_a_form_is(learner: Any, draw: Draw) -> None:
    """The same images in base64 get the same labels, and one by itself the same answer, to the last digit."""
    learner.taught("red", "green", "blue")
    images = [b64encode(draw(look)).decode() for look in ("red", "blue")]

    together = learner.post("/predict", json={"images": images})
    alone = learner.post("/predict", json={"images": images[:1]})

    assert together.status_code == 200
    assert [found["label"] for found in together.json()["predictions"]] == ["red", "blue"]
    assert alone.json() == learner.predict("red")


def test_many_images_are_answered_as_each_by_itself(learner: Any, draw: Draw) -> None:
    """64 images go through the network in several batches and come back in order."""
    learner.taught("red", "green", "blue", "yellow")
    looks = ["red", "green", "blue", "yellow"] * 16
    files = [("images", (str(number), draw(look, number))) for number, look in enumerate(looks)]

    answers = learner.post("/predict", files=files).json()["predictions"]

    alone = [learner.post("/predict", files=[files[place]]).json()["predictions"][0] for place in (0, 13, 62)]
    assert [found["top"][0]["label"] for found in answers] == looks
    for place, one in zip((0, 13, 62), alone, strict=True):
        assert answers[place]["top"][0] == pytest.approx(one["top"][0], abs=1e-5)


def test_one_image_too_many_is_refused(learner: Any, draw: Draw) -> None:
    """65 are more than a request may have."""
    files = [("images", (str(number), draw("red"))) for number in range(65)]

    answer = learner.post("/predict", files=files)

    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/too-many-images"


@pytest.mark.parametrize(("top_k", "listed"), [(1, 1), (2, 2), (100, 6), (None, 5)])
def test_as_many_classes_are_listed_as_asked_for(learner: Any, top_k: int | None, listed: int) -> None:
    """Five unless said otherwise; never more than there are. Confidence is about all classes, listed or not."""
    learner.taught("red", "green", "blue", "yellow", "violet", "orange")
    (whole,) = learner.predict("red", top_k=100)["predictions"]

    (found,) = learner.predict("red", **({} if top_k is None else {"top_k": top_k}))["predictions"]

    assert found["top"] == whole["top"][:listed]
    assert len(found["top"]) == listed
    assert found["confidence"] == whole["confidence"]


@pytest.mark.parametrize(
    "query", ["top_k=0", "top_k=101", "top_k=many", "top_k=", "top_k=5&top_k=0", "version=-1", "version=latest"]
)
def test_a_parameter_that_cannot_be_is_refused(learner: Any, draw: Draw, query: str) -> None:
    """422 names it."""
    answer = learner.post(f"/predict?{query}", files={"images": draw("red")})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["where"] == f"query {query.partition('=')[0]}"


def test_bad_images_are_named(learner: Any, draw: Draw) -> None:
    """Which of them, what they are called and what is wrong with them; they take up nobody's room any more."""
    files = [("images", ("good.png", draw("red"))), ("images", ("bad.png", b"\x89PNG\r\n\x1a\nbroken"))]

    answer = learner.post("/predict", files=files)

    (bad,) = answer.json()["images"]
    assert answer.status_code == 422
    assert (bad["index"], bad["filename"]) == (1, "bad.png")
    assert bad["reason"]
    assert learner.service.context.predictor.queued == 0


def test_with_nothing_taught_everything_is_unknown(learner: Any) -> None:
    """An answer all the same: no label, no candidates."""
    answer = learner.predict("red")

    nothing = {"label": None, "class_id": None, "confidence": 0.0, "unknown": True, "top": []}
    assert answer == {"model": learner.name, "version": 0, "predictions": [nothing]}


def test_something_utterly_different_is_unknown(learner: Any) -> None:
    """No label is made up for it; the nearest classes are listed, and the version says how it was calibrated."""
    learner.taught("red", "green", "blue")

    (strange,) = learner.predict("stripes")["predictions"]

    version = learner.get(f"/versions/{learner.version}")
    unknown = version["details"]["unknown"]
    assert (strange["unknown"], strange["label"], strange["class_id"]) == (True, None, None)
    assert len(strange["top"]) == 3
    assert strange["top"][0]["distance"] > version["threshold"] == unknown["threshold"]
    assert (unknown["calibrated_to_accept"], unknown["calibrated_on"]) == (95.0, 9)
    assert unknown["known_accepted"] >= 800 / 9 - 0.01  # all of nine images but one, at most
    assert unknown["strangers_refused"] == 100
    assert learner.labels("red", "green", "blue") == ["red", "green", "blue"]


def test_what_is_unknown_stays_so_after_a_session(learner: Any) -> None:
    """The refined version is calibrated anew, on its own network."""
    learner.taught("red", "green", "blue")
    before = learner.get(f"/versions/{learner.version}")["threshold"]
    learner.refine()

    (strange,) = learner.predict("stripes")["predictions"]

    version = learner.get(f"/versions/{learner.version}")
    assert strange["unknown"] is True
    assert version["details"]["unknown"]["calibrated_on"] == 9
    assert version["threshold"] != before


def test_a_pinned_version_answers_as_it_did(learner: Any) -> None:
    """It knows what it knew, whatever has been taught, refined or deleted since."""
    red, _ = learner.taught("red", "green")
    pinned = learner.predict_one_by_one("red", "green")
    learner.taught("blue")
    learner.refine()
    learner.delete(red["id"])

    again = learner.predict_one_by_one("red", "green", version=pinned["version"])

    assert again == pinned
    assert learner.predict("red")["version"] == learner.version > pinned["version"]


def test_a_version_that_does_not_exist_cannot_be_pinned(learner: Any, draw: Draw) -> None:
    """404 says which is the newest."""
    learner.taught("red")

    answer = learner.post("/predict?version=12", files={"images": draw("red")})

    assert answer.status_code == 404
    assert answer.json()["detail"] == "version 12 does not exist; the newest is 1"


def test_a_model_that_does_not_exist_predicts_nothing(service: Any, draw: Draw) -> None:
    """404, and 422 where the name could be no model's."""
    missing = service.http.post("/models/nobody/predict", files={"images": draw("red")})
    impossible = service.http.post("/models/No Body/predict", files={"images": draw("red")})

    assert (missing.status_code, impossible.status_code) == (404, 422)
    assert missing.json()["detail"] == "there is no model named 'nobody'; GET /models lists them"


def test_an_answer_is_what_the_documentation_says(learner: Any, draw: Draw) -> None:
    """It is not validated on its way out. A query may leave everything to its default, and name what is unknown."""
    learner.taught("red", "green")
    files = [("images", draw("red")), ("images", draw("stripes"))]

    for model in (learner, learner.service.learner()):  # one by its name, and the default one
        plain, asked = (model.post(f"/predict{query}", files=files) for query in ("", "?top_k=5&other=1"))

        assert plain.json() == asked.json()
        assert plain.headers["content-type"] == asked.headers["content-type"] == "application/json"
        documented = PredictionsBody.model_validate_json(plain.content, strict=True)
        assert documented.model_dump(mode="json", exclude_unset=True) == plain.json()
        assert model.ask("GET", "/predict").status_code == 405


def test_what_is_not_a_number_is_null_and_unknown(learner: Any, draw: Draw) -> None:
    """JSON has no word for it, and many readers fail on the one that Python uses."""
    learner.taught("red")
    learner.service.context.versions.active(learner.name).classifier.prototypes.fill_(float("nan"))

    answer = learner.post("/predict", files={"images": draw("red")})

    assert "NaN" not in answer.text
    (found,) = answer.json()["predictions"]
    assert found["unknown"] is True
    assert found["top"][0]["distance"] is None


def test_the_pinned_version_that_was_not_used_for_longest_is_given_up(learner: Any) -> None:
    """Not the one that was pinned first: that may be the one that everybody asks for."""
    learner.taught("red", "green", "blue", "yellow", "violet", "orange")
    first, *others = range(1, PINNED + 1)
    for number in (first, *others, first):
        learner.predict("red", version=number)

    learner.predict("red", version=PINNED + 1)

    ready = [n for n in (first, *others) if learner.service.context.versions.ready(learner.name, n) is not None]
    assert ready == [first, *others[1:]]
