"""A base session's result is written whole or not at all, and nothing taught before or meanwhile is lost."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from core.bank import ClassId
from core.classifier import Certainty, NearestClassMean, calibrate
from core.progress import silent
from core.state import LearnerState, weights_of
from core.unknown import beyond_leeway
from engine.backbone_cache import BackboneCache
from learners.base_folder import read_folder
from learners.base_images import ImageReader, read_images
from learners.base_publishing import PublishedBase, find_target, publish_base
from learners.base_training import BaseResult, base_config, train_base, trunk_for
from learners.blobs import from_blob, to_blob
from learners.loading import classifier_of_version, untaught, weights_of_version
from learners.stored_images import views_of
from learners.taught_class import learn_class
from store import bank_rows, catalogue, classes, session_metrics, sessions, versions
from store.bank_rows import PrototypeRow
from store.database import Database
from store.errors import Conflict, LimitReached, NameTaken
from store.models import ClassRow, GuardImage, Model, Shot, Version, VersionNumber
from store.settings import Settings
from tests.painted import paint, picture

SETTINGS = Settings()
NAMES = ("blue", "green", "red")
SHOTS = [picture("violet", number) for number in range(3)]


def learnt_from(
    classes: dict[str, int], folder: Path, networks: BackboneCache, epochs: int = 1, junk: str | None = None
) -> BaseResult:
    paint(folder, classes)
    if junk:
        (folder / junk).write_text("no picture")
    folders = read_folder(folder)
    backbone = networks.pretrained("resnet32")
    config = base_config(backbone, epochs)
    images = read_images(folders, ImageReader(backbone, trunk_for(networks, backbone, config)), folder)
    return train_base(folders, images, networks, backbone, config, silent)


@pytest.fixture(scope="module")
def learnt(networks: BackboneCache, tmp_path_factory: pytest.TempPathFactory) -> BaseResult:
    """Five pictures of each class: three to learn from, two on guard; and a file that is no picture."""
    return learnt_from(dict.fromkeys(NAMES, 5), tmp_path_factory.mktemp("base"), networks, junk="red/notes")


def published(database: Database, learnt: BaseResult, model: str = "default") -> PublishedBase:
    return publish_base(database, SETTINGS, model, learnt)


def own_state(networks: BackboneCache) -> LearnerState:
    """The network as it comes, without classes."""
    backbone = networks.pretrained("resnet32")
    return untaught(backbone.name, weights_of(backbone, "tail"), backbone.dim)


def head_of(db: Session, model: str = "default") -> Version:
    row = catalogue.get(db, model)
    return versions.get(db, row.id, row.head)


def teach(database: Database, name: str, pictures: list[bytes], model: str = "default") -> int:
    """As the service does it, but for what the prototype is: whatever it was, the new network sees the shots anew."""
    with database.write() as db:
        row = catalogue.find(db, model) or catalogue.create(db, model, "resnet32", 1.0)
        head = versions.get(db, row.id, row.head)
        since = VersionNumber(row.last_version + 1)
        session = sessions.enqueue(db, row, delay=0, patience=0)
        own = classes.add(db, row, name, shots=len(pictures), since=since, session_id=session.id)
        classes.add_shots(db, row.id, own.id, pictures)
        prototype = PrototypeRow(own.id, bytes(4 * 64), len(pictures), restart=True)
        versions.add(
            db,
            row,
            versions.NewVersion(
                "provisional",
                parent=head,
                classes=head.classes + 1,
                temperature=1.0,
                threshold=None,
                prototypes=[prototype],
            ),
        )
        return own.id


def delete(database: Database, class_id: int) -> None:
    with database.write() as db:
        row = catalogue.get(db, "default")
        classes.erase(db, row.id, class_id)
        gone = [PrototypeRow(class_id, None, 0, restart=True)]
        head = versions.get(db, row.id, row.head)
        versions.add(
            db,
            row,
            versions.NewVersion(
                "delete",
                parent=head,
                classes=head.classes - 1,
                temperature=1.0,
                threshold=None,
                prototypes=gone,
            ),
        )


class Interrupted:
    """A database in which something happens once, after the result was prepared and before it is written."""

    def __init__(self, database: Database, happens: Callable[[], object]) -> None:
        self.database = database
        self.happens = happens
        self.writes = 0

    def read(self) -> AbstractContextManager[Session]:
        return self.database.read()

    def write(self) -> AbstractContextManager[Session]:
        self.writes += 1
        if self.writes == 1:
            self.happens()
        return self.database.write()


# What is written


def test_a_base_session_makes_the_model_and_its_first_version(database: Database, learnt: BaseResult) -> None:
    """Version 0 is the network without classes; version 1 stands on its own weights."""
    outcome = published(database, learnt, "birds")

    with database.read() as db:
        head = head_of(db, "birds")
        assert (head.number, head.parent, head.kind, head.base, head.weights) == (1, 0, "base", 1, 1)
        assert (head.classes, head.kept, head.session_id) == (3, True, None)
        assert catalogue.get(db, "birds").backbone == "resnet32"
    assert (outcome.version, outcome.classes, outcome.kept) == (1, 3, 0)


def test_classes_are_learned_from_their_training_pictures(database: Database, learnt: BaseResult) -> None:
    """Two of five are held out and stored; those that were trained on are not."""
    published(database, learnt)

    with database.read() as db:
        rows = list(db.scalars(select(ClassRow).order_by(ClassRow.id)))
        guard = [(image.class_id, image.data) for image in db.scalars(select(GuardImage).order_by(GuardImage.id))]
        assert [(row.id, row.name, row.status, row.shots, row.since) for row in rows] == [
            (1, "blue", "learned", 3, 1),
            (2, "green", "learned", 3, 1),
            (3, "red", "learned", 3, 1),
        ]
        assert db.scalars(select(Shot)).all() == []
        assert session_metrics.counts(db) == {}
    assert [class_id for class_id, _ in guard] == [1, 1, 2, 2, 3, 3]
    for class_id, data in guard:
        assert data in [picture(NAMES[class_id - 1], number) for number in range(5)]


def test_what_is_read_back_is_what_was_learnt(database: Database, learnt: BaseResult, networks: BackboneCache) -> None:
    """Weights, space and prototypes come out of the store bit for bit."""
    published(database, learnt)

    with database.read() as db:
        head = head_of(db)
        network = weights_of_version(db, own_state(networks), head)
        remembered = bank_rows.read_bank(db, head.model_id, head.number, copies=5)
    state = learnt.state
    assert network.weights.keys() == state.weights.keys()
    assert all(torch.equal(network.weights[name], state.weights[name]) for name in state.weights)
    assert network.space.whitening is not None
    assert state.space.whitening is not None
    assert torch.equal(network.space.whitening.projection, state.space.whitening.projection)
    assert [row.copies for row in remembered] == [(to_blob(prototype),) for prototype in state.bank.prototypes]
    assert [row.initial for row in remembered] == [row.copies[0] for row in remembered]
    assert [row.shots for row in remembered] == [3, 3, 3]


def test_guard_pictures_say_how_sure_it_may_be(database: Database, learnt: BaseResult, networks: BackboneCache) -> None:
    """Accuracy, temperature, threshold and distances, recounted from the stored pictures with the stored network."""
    outcome = published(database, learnt)

    with database.read() as db:
        head = head_of(db)
        network = weights_of_version(db, own_state(networks), head)
        known, held_out = classifier_of_version(db, head, network.space, 64)
        guard = classes.guard_set(db, head.model_id, [1, 2, 3], 100)
    backbone = networks.trained("resnet32", network.weights)
    with torch.no_grad():
        features = backbone(torch.cat([views_of(one.data, backbone.framing, augmented=0) for one in guard]))
    distances = known.distances(features)
    own = torch.tensor([one.class_id - 1 for one in guard])
    apart = distances.min(1).values
    hits = (distances.argmin(1) == own).float().mean()
    assert outcome.accuracy == round(100 * float(hits), 2)
    assert head.details["accuracy"] == {"old": outcome.accuracy, "new": None}
    assert head.temperature == pytest.approx(calibrate(distances, own).temperature, rel=0.3)
    beyond = beyond_leeway(apart, own)
    assert head.threshold == pytest.approx(float(beyond.mean() + 1.95 * (1 + 2 / 6) * beyond.std()), abs=2e-3)
    assert head.details["unknown"]["calibrated_on"] == 6
    for class_id in (1, 2, 3):
        expected = apart[own == class_id - 1]
        assert torch.allclose(held_out[ClassId(class_id)], expected, atol=2e-3)


def test_details_count_pictures_and_what_was_skipped(database: Database, learnt: BaseResult) -> None:
    """Fifteen pictures, and one file that was none."""
    published(database, learnt)

    with database.read() as db:
        details = head_of(db).details
    assert (details["pictures"], details["skipped"]) == (15, 1)


def test_without_guard_pictures_nothing_is_measured(
    database: Database, networks: BackboneCache, tmp_path: Path
) -> None:
    """Two pictures of each class are all learned from; then nothing counts as unknown."""
    outcome = published(database, learnt_from({"red": 2, "blue": 2}, tmp_path, networks))

    with database.read() as db:
        head = head_of(db)
        assert (head.threshold, head.temperature) == (None, Certainty().temperature)
        assert head.details["accuracy"] == {"old": None, "new": None}
        assert [row.held_out for row in bank_rows.read_bank(db, head.model_id, 1)] == [None, None]
    assert outcome.accuracy is None


def test_a_single_class_leaves_the_network_as_it_was(
    database: Database, networks: BackboneCache, tmp_path: Path
) -> None:
    """There is nothing to tell it apart from, so nothing is trained."""
    published(database, learnt_from({"red": 4}, tmp_path, networks))

    with database.read() as db:
        head = head_of(db)
        network = weights_of_version(db, own_state(networks), head)
    before = weights_of(networks.pretrained("resnet32"), "tail")
    assert head.classes == 1
    assert network.weights.keys() == before.keys()
    assert all(torch.equal(network.weights[name], before[name]) for name in before)


@pytest.fixture(scope="module", params=[0, 1], ids=["untrained", "trained"])
def learnt_whole(
    request: pytest.FixtureRequest,
    untrained_networks: tuple[BackboneCache, BackboneCache],
    tmp_path_factory: pytest.TempPathFactory,
) -> BaseResult:
    """By the first of two processes, on a backbone that has no pretrained weights."""
    folder = tmp_path_factory.mktemp("whole")
    return learnt_from({"red": 3, "blue": 3}, folder, untrained_networks[0], epochs=request.param)


def test_a_backbone_without_pretrained_weights_is_written_whole(
    database: Database, learnt_whole: BaseResult, untrained_networks: tuple[BackboneCache, BackboneCache]
) -> None:
    """Another process, whose own network began elsewhere, sees pictures as the one that trained it."""
    mine, other = untrained_networks
    view = views_of(picture("red", 0), mine.pretrained("resnet32").framing, augmented=0)

    published(database, learnt_whole)

    with database.read() as db:
        network = weights_of_version(db, own_state(other), head_of(db))
    theirs = other.trained("resnet32", network.weights)
    with torch.no_grad():
        expected = mine.trained("resnet32", learnt_whole.state.weights)(view)
        assert torch.equal(theirs(view), expected)
        assert torch.allclose(theirs.tail(other.compiled("resnet32").trunk(network.weights)(view)), expected, atol=1e-5)
        assert not torch.allclose(other.pretrained("resnet32")(view), expected, atol=1e-2)


# What was taught before


def test_a_class_taught_before_is_seen_anew(database: Database, learnt: BaseResult, networks: BackboneCache) -> None:
    """Its prototype is that of its stored shots under the new network; recomputed here, among the base classes."""
    class_id = ClassId(teach(database, "violet", SHOTS))
    backbone = networks.trained("resnet32", learnt.state.weights)
    with torch.no_grad():
        features = torch.stack([backbone(views_of(shot, backbone.framing)) for shot in SHOTS])
    bank = replace(learnt.state.bank, class_ids=(ClassId(2), ClassId(3), ClassId(4)))
    expected = learn_class(NearestClassMean(learnt.state.space, bank, Certainty()), features, class_id)

    outcome = published(database, learnt)

    with database.read() as db:
        head = head_of(db)
        row = bank_rows.prototype(db, head.model_id, head.number, class_id)
        assert (head.number, head.parent, head.classes) == (2, 1, 4)
        assert bank_rows.class_ids(db, head.model_id, head.number) == [1, 2, 3, 4]
    assert outcome.kept == 1
    assert row is not None
    assert row.vector is not None
    assert row.held_out is not None
    assert (row.restart, row.shots) == (True, 3)
    assert torch.allclose(from_blob(row.vector), expected.prototype, atol=1e-4)
    assert torch.allclose(from_blob(row.held_out), expected.held_out, atol=1e-4)


def test_a_class_taught_before_is_learned_by_a_network_that_was_trained_whole(
    database: Database, learnt_whole: BaseResult, untrained_networks: tuple[BackboneCache, BackboneCache]
) -> None:
    """Trunk and tail are both the new ones; recomputed with the whole network."""
    class_id = ClassId(teach(database, "violet", SHOTS))
    backbone = untrained_networks[0].trained("resnet32", learnt_whole.state.weights)
    with torch.no_grad():
        features = torch.stack([backbone(views_of(shot, backbone.framing)) for shot in SHOTS])
    bank = replace(learnt_whole.state.bank, class_ids=(ClassId(2), ClassId(3)))
    expected = learn_class(NearestClassMean(learnt_whole.state.space, bank, Certainty()), features, class_id)

    published(database, learnt_whole)

    with database.read() as db:
        head = head_of(db)
        row = bank_rows.prototype(db, head.model_id, head.number, class_id)
    assert row is not None
    assert row.vector is not None
    assert torch.allclose(from_blob(row.vector), expected.prototype, atol=1e-4)


def test_a_class_taught_before_goes_on_waiting_for_its_session(database: Database, learnt: BaseResult) -> None:
    """It has its shots and its place in the queue as before."""
    teach(database, "violet", SHOTS)

    published(database, learnt)

    with database.read() as db:
        model = catalogue.get(db, "default")
        assert [row.name for row in classes.waiting(db, model.id)] == ["violet"]
        assert [shot.data for shot in classes.shots_of(db, model.id, [1])] == SHOTS
        assert session_metrics.counts(db) == {"queued": 1}


def test_a_deleted_class_does_not_come_back(database: Database, learnt: BaseResult) -> None:
    """Neither its prototype nor its number is used again; its name is free."""
    delete(database, teach(database, "red", SHOTS))

    published(database, learnt)

    with database.read() as db:
        head = head_of(db)
        assert bank_rows.class_ids(db, head.model_id, head.number) == [2, 3, 4]


def test_the_version_before_stays_as_it_was(database: Database, learnt: BaseResult) -> None:
    """It can be activated again: a model is not trapped in its base session."""
    teach(database, "violet", SHOTS)

    published(database, learnt)

    with database.write() as db:
        model = catalogue.locked(db, catalogue.get(db, "default").id)
        before = versions.activate(db, model, 1, classes.living(db, model.id))
        assert (before.number, before.base) == (1, 0)
        assert bank_rows.class_ids(db, model.id, model.head) == [1]


# What happens meanwhile


def test_a_class_taught_meanwhile_is_kept(database: Database, learnt: BaseResult) -> None:
    """The result is prepared again for the new head, and its classes numbered after the new one."""
    teach(database, "violet", SHOTS)
    interrupted: Any = Interrupted(database, lambda: teach(database, "pink", [picture("pink", 0)]))

    outcome = published(interrupted, learnt)

    with database.read() as db:
        head = head_of(db)
        names = classes.names(db, head.model_id)
        known = [names[class_id] for class_id in bank_rows.class_ids(db, head.model_id, head.number)]
    assert known == ["violet", "pink", *NAMES]
    assert outcome.kept == 2
    assert interrupted.writes == 2


def test_a_model_made_meanwhile_is_learned_on(database: Database, learnt: BaseResult) -> None:
    """Two may make a model at once; what the other taught it is kept."""
    interrupted: Any = Interrupted(database, lambda: teach(database, "violet", SHOTS))

    outcome = published(interrupted, learnt)

    with database.read() as db:
        assert [model.name for model in catalogue.everything(db)] == ["default"]
        assert bank_rows.class_ids(db, head_of(db).model_id, outcome.version) == [1, 2, 3, 4]


def test_a_name_taken_meanwhile_leaves_nothing_behind(database: Database, learnt: BaseResult) -> None:
    """A renamed class moves no head, so names are looked at once more under the lock."""
    class_id = teach(database, "violet", SHOTS)

    def rename() -> None:
        with database.write() as db:
            classes.rename(db, catalogue.get(db, "default"), class_id, "green")

    interrupted: Any = Interrupted(database, rename)

    with pytest.raises(NameTaken, match="has classes of these names already: 'green'; rename the folders"):
        published(interrupted, learnt)

    with database.read() as db:
        model = catalogue.get(db, "default")
        assert (model.head, model.last_version, model.last_class) == (1, 1, 1)
        assert db.scalars(select(GuardImage)).all() == []


# What is refused


def test_a_second_base_session_is_refused(database: Database, learnt: BaseResult) -> None:
    """Also when something was taught on top of the first."""
    published(database, learnt)
    teach(database, "violet", SHOTS)

    with (
        pytest.raises(Conflict, match=r"'default' stands on a base session already \(version 1\)"),
        database.read() as db,
    ):
        find_target(db, "default", SETTINGS, ["mauve"])


def test_names_that_are_taken_are_told_up_to_five(database: Database) -> None:
    """The rest is a number."""
    names = [f"class {number}" for number in range(7)]
    for name in names:
        teach(database, name, SHOTS[:1])

    with pytest.raises(NameTaken) as refused, database.read() as db:
        find_target(db, "default", SETTINGS, [*names, "mauve"])

    assert "'class 0', 'class 1', 'class 2', 'class 3', 'class 4' and 2 more" in str(refused.value)
    assert "mauve" not in str(refused.value)


def test_more_classes_than_the_limit_are_refused(database: Database) -> None:
    """What was taught counts too."""
    teach(database, "violet", SHOTS)

    with database.read() as db:
        fits = find_target(db, "default", Settings(max_classes=3), ["a", "b"])
        with pytest.raises(LimitReached, match="would have 4 classes, of 3"):
            find_target(db, "default", Settings(max_classes=3), ["a", "b", "c"])
        with pytest.raises(LimitReached, match="would have 4 classes, of 3"):
            find_target(db, "new", Settings(max_classes=3), ["a", "b", "c", "d"])
    assert fits.taught == (1,)


def test_a_model_made_on_another_backbone_is_refused(database: Database, learnt: BaseResult) -> None:
    """Weights of one network are of no use to another."""
    with database.write() as db:
        catalogue.create(db, "default", "efficientnet_lite0", 1.0)

    with pytest.raises(Conflict, match="was made on efficientnet_lite0 while a base session of resnet32 ran"):
        published(database, learnt)

    with database.read() as db:
        assert db.scalars(select(Model.last_version)).one() == 0
