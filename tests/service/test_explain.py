"""`POST /predict?explain=true`: the nearest shots say why."""

from typing import Any


def test_the_nearest_shots_are_listed(learner: Any) -> None:
    """Of the nearest classes, nearest first, at most six; the answer itself is the same."""
    red, *_ = learner.taught("red", "green", "blue")

    plain = learner.predict("red", "stripes")
    found = learner.predict("red", "stripes", explain=True)

    near = found["predictions"][0].pop("neighbours")
    assert [one["label"] for one in near[:3]] == ["red"] * 3
    assert len(near) == 6
    assert [one["distance"] for one in near] == sorted(one["distance"] for one in near)
    shots = {one["id"] for one in learner.get(f"/classes/{red['id']}/shots")["items"]}
    assert {one["shot_id"] for one in near[:3]} == shots
    assert len(found["predictions"][1].pop("neighbours")) == 6
    assert found == plain


def test_an_image_that_was_taught_is_its_own_neighbour(learner: Any, draw: Any) -> None:
    """At no distance but rounding."""
    learner.taught("red", "green")
    files = [("images", ("red.png", draw("red", 1), "image/png"))]

    (found,) = learner.post("/predict", files=files, params={"explain": True}).json()["predictions"]

    assert found["neighbours"][0]["distance"] < 0.01


def test_nothing_taught_has_no_neighbours(learner: Any) -> None:
    """And several views are explained by the centre."""
    assert learner.predict("red", explain=True)["predictions"][0]["neighbours"] == []
    learner.taught("red")
    assert len(learner.predict("red", explain=True, views=2)["predictions"][0]["neighbours"]) == 3


def test_without_it_nothing_is_listed(learner: Any) -> None:
    """Neither neighbours nor samples: predictions are as they were."""
    learner.taught("red")

    (found,) = learner.predict("red")["predictions"]

    assert set(found) == {"label", "class_id", "confidence", "unknown", "top"}
