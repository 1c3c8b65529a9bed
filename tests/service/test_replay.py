"""What a session learns from again: the stored shots of classes that were taught, if the settings allow it."""

from typing import Any

import torch

from learners.refining import Claim, Learned, Material, learn, read_material
from store import catalogue
from store.models import SessionId
from tests.service.conftest import QUICK, SHOTS
from workers.session_worker import SessionWorker

TAUGHT = ("red", "green", "blue")
LOOKS = (*TAUGHT, "yellow")


def worker_with(learner: Any, **settings: Any) -> SessionWorker:
    chosen = learner.service.settings.model_copy(update=settings)
    return SessionWorker(learner.service.database, chosen, "test", config=QUICK)


def material_of(learner: Any, **settings: Any) -> Material:
    """What a session would start from."""
    worker = worker_with(learner, **settings)
    with worker.database.read() as db:
        model = catalogue.get(db, learner.name)
    claim = Claim(SessionId(learner.get("/sessions")["items"][0]["id"]), 1, model.id, None)
    return read_material(worker.database, worker.backbones, claim, worker.settings)


def waiting_for_a_second_session(learner: Any) -> list[int]:
    """The ids of the classes that have had a session."""
    old = [found["id"] for found in learner.taught(*TAUGHT)]
    learner.refine()
    learner.taught("yellow")
    return old


def test_shots_of_taught_classes_are_replayed(learner: Any) -> None:
    """All of them, and none of the classes that wait; what is learned from is not on guard too."""
    old = waiting_for_a_second_session(learner)

    material = material_of(learner)

    assert sorted(image.class_id for image in material.replay) == sorted(old * SHOTS)
    assert {image.class_id for image in material.shots} == set(material.waiting)
    assert not set(material.waiting) & set(old)
    assert material.guard == []
    assert material.parent.scatter is None  # of the base, which is the network as it comes: no class counts twice


def test_switched_off_no_shot_is_replayed(learner: Any) -> None:
    """Old classes take part with what the head remembers of them, and their shots are only measured on."""
    old = waiting_for_a_second_session(learner)

    material = material_of(learner, replay="off")

    scatter, remembered = material.parent.scatter, material.weights.scatter
    assert material.replay == []
    assert {image.class_id for image in material.guard} == set(old)
    assert scatter is not None
    assert remembered is not None
    assert torch.equal(scatter.factor, remembered.factor)
    assert scatter.freedom == remembered.freedom > 0


def test_a_session_without_replay_is_promoted_too(learner: Any) -> None:
    """It sees the new shots alone, and the old classes stay known."""
    waiting_for_a_second_session(learner)
    worker, seen = worker_with(learner, replay="off"), list[Learned]()

    def remembering(*arguments: Any) -> Learned:
        seen.append(learn(*arguments))
        return seen[-1]

    worker.learn = remembering
    session = learner.refine(worker)

    assert session["verdict"] == "promoted"
    assert seen[0].images.replay is None
    assert len(seen[0].images.seen) == SHOTS
    assert learner.labels(*LOOKS) == list(LOOKS)


def test_beyond_the_limit_nothing_is_replayed(learner: Any) -> None:
    """As many as the limit are; with one more, none is."""
    old = waiting_for_a_second_session(learner)
    stored = len(old) * SHOTS

    within, beyond = material_of(learner, replay_shots=stored), material_of(learner, replay_shots=stored - 1)

    assert (len(within.replay), len(beyond.replay)) == (stored, 0)
    assert beyond.parent.scatter is not None
    assert {image.class_id for image in beyond.guard} == set(old)
