"""What versions were measured to be worth: per image, per class, per version, and drawn as a map."""

from collections.abc import Callable
from typing import Any

import pytest

from learners.refining import SessionConfig
from store import classes
from tests.service.conftest import promoted

Draw = Callable[..., bytes]


def accuracy(learner: Any, number: int) -> Any:
    return learner.get(f"/versions/{number}/accuracy")


def test_a_class_just_taught_is_measured(learner: Any) -> None:
    """Each of its shots is held out; nothing is measured for the version before."""
    learner.taught("green")
    (red,) = learner.taught("red")

    found = accuracy(learner, learner.version)

    assert (found["images"], found["right"], found["measured_at_version"]) == (6, 6, 2)
    assert [(one["label"], one["images"], one["right"]) for one in found["classes"]] == [("green", 3, 3), ("red", 3, 3)]
    assert found["classes"][1]["low"] == pytest.approx(0.4385, abs=1e-4)
    assert accuracy(learner, 0) | {"images": 0, "accuracy": None, "measured_at_version": None} == accuracy(learner, 0)
    assert learner.classes()["red"]["accuracy"] == red["accuracy"]


def test_every_shot_says_how_it_was_answered(learner: Any) -> None:
    """A stray shot is far from its siblings, is taken for the other class, and does harm."""
    learner.taught("blue")
    (red,) = learner.taught("red")
    learner.show_more(red["id"], "blue", range(5, 6))

    shots = learner.get(f"/classes/{red['id']}/shots")["items"]

    assert [one["right"] for one in shots] == [True, True, True, False]
    assert [one["outlier"] for one in shots] == [False, False, False, True]
    assert shots[3]["nearest"] == {"class_id": 1, "label": "blue"}
    assert shots[3]["distance"] > shots[0]["distance"] > 0
    assert all(isinstance(one["harmful"], bool) for one in shots)


def test_a_confused_pair_names_its_images(learner: Any) -> None:
    """So that one can look at them, and move them."""
    learner.taught("blue")
    (red,) = learner.taught("red")
    learner.show_more(red["id"], "blue", range(5, 6))
    stray = learner.get(f"/classes/{red['id']}/shots")["items"][-1]["id"]

    (pair,) = accuracy(learner, learner.version)["confused"]

    assert (pair["label"], pair["as_label"], pair["count"]) == ("red", "blue", 1)
    assert pair["shots"] == [{"class_id": red["id"], "shot_id": stray}]


def test_a_session_measures_every_shot_anew(learner: Any) -> None:
    """Stored with the version; the version before keeps its own."""
    learner.taught("red", "green", "blue")
    before = accuracy(learner, 3)

    # Without the search every shot is trained on, and none is left to measure.
    learner.refine(learner.service.make_worker(SessionConfig(augmented=2, judge=promoted)))

    after = accuracy(learner, learner.version)
    assert (after["images"], after["measured_at_version"]) == (9, learner.version)
    assert accuracy(learner, 3) == before


def test_classes_can_be_sorted_by_accuracy(learner: Any) -> None:
    """The worst first."""
    learner.taught("blue")
    (red,) = learner.taught("red")
    learner.show_more(red["id"], "blue", range(5, 6))

    assert [one["name"] for one in learner.get("/classes", sort="accuracy")["items"]] == ["red", "blue"]


def test_two_versions_are_compared_class_by_class(learner: Any) -> None:
    """With the classes that only one of them knows."""
    learner.taught("red", "green", "blue")
    learner.delete(2)

    found = learner.get("/versions/compare", **{"from": 2, "to": learner.version})

    assert (found["from"], found["to"]) == (2, 4)
    assert [one["label"] for one in found["added"]] == ["blue"]
    assert [one["label"] for one in found["removed"]] == ["green"]
    by_label = {one["label"]: one for one in found["classes"]}
    assert by_label["blue"]["from"] is None
    assert by_label["red"]["from"]["images"] == by_label["red"]["to"]["images"] == 3
    assert learner.ask("GET", "/versions/compare", params={"from": 0, "to": 99}).status_code == 404
    assert learner.ask("GET", "/versions/compare").status_code == 422


def test_a_map_shows_prototypes_and_shots(learner: Any) -> None:
    """Shots lie nearest to the prototype of their class."""
    learner.taught("red", "green", "blue", "yellow")

    found = learner.get(f"/versions/{learner.version}/map")

    places = {one["class_id"]: (one["x"], one["y"]) for one in found["prototypes"]}
    assert [one["label"] for one in found["prototypes"]] == ["red", "green", "blue", "yellow"]
    assert len(found["shots"]) == 12
    nearest = [min(places, key=lambda own: _apart(places[own], shot)) for shot in found["shots"]]
    assert sum(own == shot["class_id"] for own, shot in zip(nearest, found["shots"], strict=True)) >= 10
    assert 0.5 < sum(found["axes"]["explained"]) <= 1.0001
    assert len(learner.get(f"/versions/{learner.version}/map", limit=5)["shots"]) == 5
    assert learner.get(f"/versions/{learner.version}/map", limit=0)["shots"] == []


def _apart(place: tuple[float, float], shot: Any) -> float:
    return (place[0] - shot["x"]) ** 2 + (place[1] - shot["y"]) ** 2


def test_the_axes_of_a_map_stay(learner: Any) -> None:
    """Within a network exactly; after a session the classes are on the same sides."""
    learner.taught("red", "green", "blue", "yellow")
    before = _places(learner, learner.version)
    learner.taught("violet")
    with_one_more = _places(learner, learner.version)
    learner.refine()
    refined = _places(learner, learner.version)

    assert {own: with_one_more[own] for own in before} == before
    agreement = sum(x * u + y * v for (x, y), (u, v) in ((before[own], refined[own]) for own in before))
    assert agreement > 0


def _places(learner: Any, number: int) -> dict[int, tuple[float, float]]:
    found = learner.get(f"/versions/{number}/map", limit=0)["prototypes"]
    return {one["class_id"]: (one["x"], one["y"]) for one in found}


def test_a_map_of_nothing_is_empty(learner: Any) -> None:
    """A single class is at the origin."""
    empty = learner.get("/versions/0/map")
    learner.taught("red")

    assert (empty["prototypes"], empty["shots"]) == ([], [])
    assert _places(learner, 1) == {1: (0.0, 0.0)}


def test_measurements_go_with_their_images(learner: Any) -> None:
    """A class that was deleted is in no accuracy any more."""
    learner.taught("red", "green")

    learner.delete(1)

    assert [one["label"] for one in accuracy(learner, 2)["classes"]] == ["green"]


def test_a_correction_is_measured(learner: Any) -> None:
    """Moving the stray shot repairs both classes."""
    learner.taught("blue")
    (red,) = learner.taught("red")
    learner.show_more(red["id"], "blue", range(5, 6))
    stray = learner.get(f"/classes/{red['id']}/shots")["items"][-1]["id"]

    learner.post(f"/classes/{red['id']}/shots/{stray}/move", json={"to": 1}).raise_for_status()

    found = accuracy(learner, learner.version)
    assert [(one["label"], one["images"], one["right"]) for one in found["classes"]] == [("blue", 4, 4), ("red", 3, 3)]


def test_features_are_computed_once(learner: Any, draw: Draw) -> None:
    """By their digest: an id that is used again is another image."""
    learner.taught("red", "green")
    first = learner.get(f"/versions/{learner.version}/map")["shots"]
    with learner.service.database.write() as db:
        model_id = learner.service.context.versions.active(learner.name).model_id
        key = classes.shot_keys(db, model_id, 2)[-1]
        classes.delete_shot(db, model_id, key)
        classes.add_shots(db, model_id, 2, [draw("blue", 1)])

    second = learner.get(f"/versions/{learner.version}/map")["shots"]

    assert second[:-1] == first[:-1]
    assert second[-1] != first[-1]
