"""The whole story as a user lives it, once for the default model and once for another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import preparation

LOOKS = ("red", "green", "blue", "yellow", "violet")


@pytest.mark.parametrize("name", ["default", "birds"])
def test_teach_predict_refine_roll_back_and_delete(start: Callable[..., Any], name: str) -> None:
    """Five classes are taught and known at once, refined without loss, rolled back exactly, and deleted for good."""
    service = start()
    if name != "default":
        assert service.http.post("/models", json={"name": name}).status_code == 201
    learner = service.learner(name)

    taught = learner.taught(*LOOKS)
    provisional = learner.predict_one_by_one(*LOOKS, "stripes")
    assert [found["label"] for found in provisional["predictions"]] == [*LOOKS, None]
    assert provisional["version"] == 5

    session = learner.refine()
    refined = learner.predict_one_by_one(*LOOKS, "stripes")
    assert (session["verdict"], session["version"]) == ("promoted", refined["version"])
    assert [found["label"] for found in refined["predictions"]] == [*LOOKS, None]
    assert {found["status"] for found in learner.classes().values()} == {"learned"}

    assert learner.activate(provisional["version"])["active"] is True
    assert learner.predict_one_by_one(*LOOKS, "stripes") == provisional

    for found in taught[:2]:
        learner.delete(found["id"])
    learner.activate(refined["version"])
    assert learner.labels(*LOOKS[2:]) == list(LOOKS[2:])
    assert {one["label"] for one in learner.predict("red")["predictions"][0]["top"]} == set(LOOKS[2:])
    assert list(learner.classes()) == list(LOOKS[2:])
    assert learner.get(f"/versions/{learner.version}")["kind"] == "rollback"


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_the_default_backbone_on_the_default_engine_learns_too(
    start: Callable[..., Any], prepared_backbones: Path
) -> None:
    """The network and the engine that a deployment has without any setting."""
    preparation.prepare("efficientnet_lite0", prepared_backbones)  # however long a busy machine takes
    learner = start(backbone="efficientnet_lite0", engine="auto").learner()

    learner.taught("red", "green")

    assert learner.labels("red", "green") == ["red", "green"]
