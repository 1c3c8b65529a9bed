"""`/models`: several learners on one deployment, none of which knows of another."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

Draw = Callable[..., bytes]


def test_a_new_model_knows_nothing_and_can_be_taught(service: Any) -> None:
    """It is where Location says, on the deployment's backbone, and listed with the others."""
    answer = service.http.post("/models", json={"name": "birds"})

    learner = service.learner("birds")
    shown = service.http.get(answer.headers["location"]).json()
    listed = {found["name"]: found for found in service.http.get("/models").json()["items"]}
    assert answer.status_code == 201
    assert answer.json() | {"name": "birds", "backbone": "resnet32", "version": 0, "classes": 0} == answer.json()
    assert answer.json() == shown == listed["birds"]
    assert "default" in listed
    learner.taught("red")
    assert service.http.get("/models/birds").json() == shown | {"version": 1, "classes": 1}
    assert service.http.delete("/models/birds").status_code == 204


def test_models_do_not_know_of_each_other(learner: Any, service: Any) -> None:
    """The same name means another class in another model, with versions and sessions of its own."""
    service.http.post("/models", json={"name": "other"})
    other = service.learner("other")
    other.teach("green", name="mine")

    learner.teach("red", name="mine")

    assert learner.labels("red") == ["mine"]
    assert other.labels("red") == [None]
    assert [len(one.get("/classes")["items"]) for one in (learner, other)] == [1, 1]
    assert [len(one.get("/sessions")["items"]) for one in (learner, other)] == [1, 1]
    service.http.delete("/models/other")


def test_a_deleted_model_is_gone_with_all_it_knew(service: Any, draw: Draw) -> None:
    """Nothing under its name answers; a model made under that name again begins with nothing."""
    service.http.post("/models", json={"name": "birds"})
    birds = service.learner("birds")
    birds.taught("red")

    deleted = service.http.delete("/models/birds")

    routes = [("GET", ""), ("GET", "/classes"), ("GET", "/versions"), ("GET", "/sessions")]
    assert deleted.status_code == 204
    assert [birds.ask(*route).status_code for route in routes] == [404] * 4
    assert birds.post("/predict", files={"images": draw("red")}).status_code == 404
    assert birds.teach("red").status_code == 404
    assert service.http.delete("/models/birds").status_code == 404
    assert service.http.post("/models", json={"name": "birds"}).json()["version"] == 0
    assert birds.predict("red")["predictions"][0]["top"] == []
    service.http.delete("/models/birds")


def test_the_default_model_stays(service: Any) -> None:
    """The routes at the root need one."""
    answer = service.http.delete("/models/default")

    assert answer.status_code == 409
    assert service.http.get("/models/default").status_code == 200


def test_a_model_is_made_once(learner: Any) -> None:
    """Of many who make it at once one succeeds, and the others are told."""
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: learner.service.http.post("/models", json={"name": "birds"}), range(6)))
    learner.service.http.delete("/models/birds")

    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 5]


@pytest.mark.parametrize("name", ["", "Birds", "two words", "-birds", "a/b", "x" * 64, "ä"])
def test_a_name_that_cannot_be_part_of_an_address_is_refused(service: Any, name: str) -> None:
    """422 says which names can be."""
    answer = service.http.post("/models", json={"name": name})

    assert answer.status_code == 422
    assert "a-z" in answer.json()["detail"]


@pytest.mark.parametrize("backbone", ["resnet9000", "timm:no_such_network", "../../etc/passwd"])
def test_a_backbone_that_does_not_exist_is_refused(service: Any, backbone: str) -> None:
    """422, and no model is made."""
    answer = service.http.post("/models", json={"name": "birds", "backbone": backbone})

    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/unknown-backbone"
    assert service.http.get("/models/birds").status_code == 404


def test_the_root_is_the_default_model(service: Any) -> None:
    """The same resources under two addresses."""
    for path in ("/classes", "/versions", "/sessions"):
        root, named = (service.http.get(prefix + path) for prefix in ("", "/models/default"))

        assert root.status_code == 200
        assert root.json() == named.json()
