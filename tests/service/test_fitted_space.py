"""Sessions fit the space again: each version keeps the space that it was made in, wherever it is loaded."""

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from core.bank import ClassId
from core.state import with_weights
from engine.backbone_cache import BackboneCache
from learners.archive_import import checked
from learners.refined_version import RefinedVersion
from learners.refining import Learned, learn
from learners.stored_images import views_of
from learners.version_loader import LoadedVersion, VersionLoader
from store import archive, sessions
from store.settings import Settings
from tests import archives
from tests.service.conftest import Draw

LOOKS = ("red", "green", "blue", "yellow", "violet")


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the power went")


def fresh(learner: Any, number: int) -> LoadedVersion:
    """A version as a new process loads it."""
    settings: Settings = learner.service.settings
    backbones = BackboneCache(torch.device("cpu"), "torch", settings.prepared, settings.prepare_seconds)
    with closing(backbones):
        return VersionLoader(learner.service.database, backbones).load(learner.name, number, None)


def pictures(loaded: LoadedVersion, draw: Draw) -> Tensor:
    return torch.cat([views_of(draw(look), loaded.network.framing, augmented=0) for look in LOOKS])


@torch.no_grad()
def distances(loaded: LoadedVersion, draw: Draw) -> dict[ClassId, Tensor]:
    """Of a typical picture of each look, to each class."""
    found = loaded.classifier.distances(loaded.network.tail(loaded.network.trunk(pictures(loaded, draw))))
    return dict(zip(loaded.classifier.class_ids, found.T, strict=True))


def same(some: dict[ClassId, Tensor], others: dict[ClassId, Tensor]) -> bool:
    """Bit for bit."""
    return some.keys() == others.keys() and all(torch.equal(some[class_id], others[class_id]) for class_id in some)


def projection(loaded: LoadedVersion) -> Tensor:
    whitening = loaded.network.space.whitening
    return torch.eye(loaded.network.dim) if whitening is None else whitening.projection


def test_earlier_versions_answer_bit_for_bit_as_before_a_space_was_fitted(learner: Any, draw: Draw) -> None:
    """Taught in no space of their own, or refined in one that has been fitted again since."""
    learner.taught("red", "green", "blue")
    taught = learner.version
    refined = learner.refine()["version"]
    learner.taught("yellow")
    pinned = (taught, refined, learner.version)
    answers = [learner.predict_one_by_one(*LOOKS, version=number) for number in pinned]
    exactly = [distances(fresh(learner, number), draw) for number in pinned]

    newest = learner.refine()["version"]

    spaces = [projection(fresh(learner, number)) for number in (taught, refined, newest)]
    assert not any(torch.equal(one, other) for one, other in pairwise(spaces))
    assert [learner.predict_one_by_one(*LOOKS, version=number) for number in pinned] == answers
    for number, before in zip(pinned, exactly, strict=True):
        assert same(distances(fresh(learner, number), draw), before)


@pytest.mark.parametrize(("owner", "name"), [(RefinedVersion, "publish"), (sessions, "finish")])
def test_a_crash_between_training_and_publishing_leaves_the_old_space_whole(
    learner: Any, draw: Draw, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """Before anything is written, or with all of it written and not yet committed. The next attempt succeeds."""
    learner.taught("red", "green", "blue")
    learner.refine()
    learner.taught("yellow")
    session = learner.get("/sessions")["items"][0]["id"]
    head, answers = learner.version, learner.predict_one_by_one(*LOOKS)
    before = fresh(learner, head)

    with monkeypatch.context() as crash:
        crash.setattr(owner, name, broken)
        assert learner.service.worker.run_next(session)

    after = fresh(learner, head)
    assert learner.get(f"/sessions/{session}")["error"] == "RuntimeError: the power went"
    assert learner.version == head == learner.get("/versions")["items"][0]["number"]
    assert learner.predict_one_by_one(*LOOKS) == answers
    assert torch.equal(projection(after), projection(before))
    assert same(distances(after, draw), distances(before, draw))
    assert learner.service.worker.run_next(session)
    again = learner.get(f"/sessions/{session}")
    assert (again["status"], again["attempt"], again["verdict"]) == ("succeeded", 2, "promoted")
    assert not torch.equal(projection(fresh(learner, again["version"])), projection(before))


def test_a_version_loaded_afresh_answers_as_the_state_that_was_published(learner: Any, draw: Draw) -> None:
    """Weights, space and prototypes belong together when they are read back."""
    published: list[Learned] = []

    def remembering(*arguments: Any) -> Learned:
        published.append(learn(*arguments))
        return published[-1]

    worker = learner.service.make_worker(learn=remembering)
    for looks in (("red", "green", "blue"), ("yellow",)):
        learner.taught(*looks)
        version = learner.refine(worker)["version"]

        loaded = fresh(learner, version)
        state = published[-1].refinement.state
        with torch.no_grad():
            features = with_weights(published[-1].backbone, state.weights)(pictures(loaded, draw))
        expected = state.space.distances(state.space.embed(features), state.bank.prototypes)
        found = distances(loaded, draw)
        assert state.space.whitening is not None
        assert torch.equal(projection(loaded), state.space.whitening.projection)
        assert found.keys() == set(state.bank.class_ids)
        assert torch.allclose(torch.stack([found[c] for c in state.bank.class_ids], 1), expected, atol=1e-5)


def test_classes_are_taught_and_refined_in_the_space_of_the_head(learner: Any, draw: Draw) -> None:
    """A new class is known at once beside the old ones, to this process as to a new one, and its session goes on."""
    learner.taught("red", "green", "blue")
    refined = fresh(learner, learner.refine()["version"])

    learner.taught("yellow", "violet")

    loaded, served = fresh(learner, learner.version), learner.service.context.versions.active(learner.name)
    assert torch.equal(projection(loaded), projection(refined))
    assert same(distances(served, draw), distances(loaded, draw))
    assert learner.labels(*LOOKS) == list(LOOKS)
    assert learner.refine()["verdict"] == "promoted"
    assert learner.labels(*LOOKS) == list(LOOKS)


def test_an_archive_carries_the_spaces_of_its_versions(learner: Any, draw: Draw, tmp_path: Path) -> None:
    """Each version of the copy answers as the original does, and the copy goes on learning."""
    learner.taught("red", "green", "blue")
    first = learner.refine()["version"]
    learner.taught("yellow")
    second = learner.refine()["version"]
    database = learner.service.database
    path = archives.export(database, learner.name, tmp_path / "archive")
    copy = learner.service.learner(f"{learner.name}-copy")

    with checked(path, Settings(home=tmp_path / "home")) as found:
        archive.read(found.path, database, copy.name)

    for number in (first, second):
        assert same(distances(fresh(copy, number), draw), distances(fresh(learner, number), draw))
    answers, expected = (one.predict_one_by_one(*LOOKS)["predictions"] for one in (copy, learner))
    assert answers == expected
    copy.taught("violet")
    assert copy.refine()["verdict"] == "promoted"
    assert copy.labels(*LOOKS) == list(LOOKS)
    assert learner.service.http.delete(f"/models/{copy.name}").status_code == 204
