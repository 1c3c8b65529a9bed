"""Classes: names, numbers, pages, and their images."""

from hashlib import sha256

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store import catalogue, classes, sessions
from store.errors import NameTaken, NotThere
from store.models import ClassRow, GuardImage, Model, Shot, VersionNumber

ONE = VersionNumber(1)


@pytest.fixture
def taught(db: Session, model: Model) -> list[ClassRow]:
    return [classes.add(db, model, name, shots=5, since=ONE) for name in ("wren", "robin", "heron", "crane")]


def ids(rows: list[ClassRow]) -> list[int]:
    return [row.id for row in rows]


def test_classes_are_numbered_from_one_within_their_model(db: Session, model: Model) -> None:
    """Another model counts for itself."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    made = [
        classes.add(db, of, name, shots=1, since=ONE) for of, name in ((model, "wren"), (other, "van"), (model, "jay"))
    ]

    assert [(row.model_id, row.id) for row in made] == [(model.id, 1), (other.id, 1), (model.id, 2)]


def test_a_new_class_is_provisional_until_a_session_has_had_it(db: Session, model: Model) -> None:
    """Unless it is said to be learned already."""
    session = sessions.enqueue(db, model, delay=0, patience=0)
    new = classes.add(db, model, "wren", shots=5, since=ONE, session_id=session.id)
    base = classes.add(db, model, "robin", shots=30, since=ONE, status="learned")

    assert (new.status, new.shots, new.revision, new.since, new.session_id) == ("provisional", 5, 1, 1, session.id)
    assert (base.status, base.session_id) == ("learned", None)
    assert classes.waiting(db, model.id) == [new]


def test_a_name_belongs_to_one_living_class_of_a_model(db: Session, model: Model, taught: list[ClassRow]) -> None:
    """The refusal says which, and what can be done; another model may use the name."""
    with pytest.raises(NameTaken, match=r"'robin' is taken by class 2; .*/classes/2/shots"):
        classes.add(db, model, "robin", shots=1, since=ONE)

    other = catalogue.create(db, "cars", "resnet18", 1.0)
    assert classes.add(db, other, "robin", shots=1, since=ONE).id == 1
    assert model.last_class == len(taught)


@pytest.mark.usefixtures("taught")
def test_taken_names_are_found_among_many(db: Session, model: Model) -> None:
    """In alphabetical order; a deleted class has freed its name, and another model's names do not count."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    classes.add(db, other, "van", shots=1, since=ONE)
    classes.erase(db, model.id, 3)

    assert classes.taken_names(db, model.id, {"wren", "robin", "heron", "van", "owl"}) == ["robin", "wren"]
    assert classes.taken_names(db, model.id, []) == []


def test_a_deleted_class_frees_its_name_but_not_its_number(db: Session, model: Model, taught: list[ClassRow]) -> None:
    """Old versions go on calling it by that number."""
    classes.erase(db, model.id, 4)
    again = classes.add(db, model, "crane", shots=1, since=ONE)

    assert again.id == len(taught) + 1
    assert classes.names(db, model.id) == {1: "wren", 2: "robin", 3: "heron", 4: "crane", 5: "crane"}


@pytest.mark.usefixtures("taught")
@pytest.mark.parametrize("class_id", [-(2**63), -1, 0, 5, 2**31 - 1, 2**31, 2**63, 10**30])
def test_any_number_that_is_no_class_is_not_there(db: Session, model: Model, class_id: int) -> None:
    """Also one that no column could hold."""
    with pytest.raises(NotThere, match=f"no class {class_id};"):
        classes.get(db, model.id, class_id)


def test_a_class_is_found_only_in_its_own_model(db: Session, taught: list[ClassRow]) -> None:
    """Numbers repeat between models."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)

    assert classes.get(db, taught[2].model_id, 3) is taught[2]
    with pytest.raises(NotThere):
        classes.get(db, other.id, 3)


def test_pages_follow_each_other_by_the_last_number_seen(db: Session, model: Model, taught: list[ClassRow]) -> None:
    """What is deleted between two pages shifts nothing."""
    first = classes.page(db, model.id, after=0, limit=2)
    classes.erase(db, model.id, 1)
    second = classes.page(db, model.id, after=2, limit=2)

    assert ids(first + second) == ids(taught)
    assert ids(classes.page(db, model.id, after=0, limit=2)) == [2, 3]
    assert classes.page(db, model.id, after=4, limit=2) == []


@pytest.mark.usefixtures("taught")
def test_only_living_classes_are_counted(db: Session, model: Model) -> None:
    """And listed with their revisions."""
    classes.erase(db, model.id, 2)
    classes.get(db, model.id, 3).revision += 1
    other = catalogue.create(db, "cars", "resnet18", 1.0)

    assert classes.count(db, model.id) == 3
    assert classes.living(db, model.id) == {1: 1, 3: 2, 4: 1}
    assert classes.count(db, other.id) == 0


@pytest.mark.usefixtures("taught")
def test_a_class_is_renamed(db: Session, model: Model) -> None:
    """To its own name too, which is not taken by another; the model counts it, so that others look again."""
    assert classes.rename(db, model, 2, "Erithacus").name == "Erithacus"
    assert classes.rename(db, model, 2, "Erithacus").id == 2
    assert classes.names(db, model.id)[2] == "Erithacus"
    assert model.renames == 2


@pytest.mark.usefixtures("taught")
def test_a_class_cannot_be_renamed_to_another_ones_name(db: Session, model: Model) -> None:
    """Nor can one that is not there be renamed at all."""
    with pytest.raises(NameTaken, match="class 1"):
        classes.rename(db, model, 2, "wren")
    with pytest.raises(NotThere):
        classes.rename(db, model, 9, "eagle")

    assert classes.names(db, model.id)[2] == "robin"


def test_learned_classes_wait_no_longer(db: Session, model: Model, taught: list[ClassRow]) -> None:
    """Deleted ones do not either."""
    classes.mark_learned(db, model.id, [1, 3])
    classes.erase(db, model.id, 2)

    assert classes.waiting(db, model.id) == [taught[3]]
    assert [classes.get(db, model.id, each).status for each in (1, 3, 4)] == ["learned", "learned", "provisional"]


def test_marking_classes_as_learned_stays_within_the_model(db: Session, model: Model, taught: list[ClassRow]) -> None:
    """Class 1 of another model is another class; an empty list changes nothing."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    classes.add(db, other, "van", shots=1, since=ONE)
    classes.mark_learned(db, other.id, [1])
    classes.mark_learned(db, model.id, [])

    assert classes.waiting(db, model.id) == taught
    assert classes.waiting(db, other.id) == []


# Images


@pytest.mark.usefixtures("taught")
def test_images_come_back_as_they_were_in_the_order_they_came(db: Session, model: Model) -> None:
    """With their digests; shots and guard images apart."""
    classes.add_shots(db, model.id, 2, [b"\x00b", b"a"])
    classes.add_shots(db, model.id, 1, [b"c"])
    classes.add_guard(db, model.id, 2, [b"held out"])

    shots = classes.shots_of(db, model.id, [1, 2])
    assert [(shot.class_id, shot.data) for shot in shots] == [(2, b"\x00b"), (2, b"a"), (1, b"c")]
    assert [shot.sha256 for shot in shots] == [sha256(shot.data).hexdigest() for shot in shots]
    assert [shot.data for shot in classes.shots_of(db, model.id, [1])] == [b"c"]
    assert list(db.scalars(select(GuardImage.data))) == [b"held out"]
    assert [classes.count_stored_shots(db, model.id, each) for each in (1, 2, 3)] == [1, 2, 0]


@pytest.mark.usefixtures("taught")
def test_images_of_no_class_are_none(db: Session, model: Model) -> None:
    """An empty question has an empty answer."""
    classes.add_shots(db, model.id, 1, [b"a"])

    assert classes.shots_of(db, model.id, []) == []
    assert classes.guard_set(db, model.id, [], 10) == []


@pytest.mark.usefixtures("taught")
def test_a_deleted_class_leaves_no_image(db: Session, model: Model) -> None:
    """Those of other classes stay; it cannot be deleted twice."""
    for class_id in (1, 2):
        classes.add_shots(db, model.id, class_id, [b"a", b"b"])
        classes.add_guard(db, model.id, class_id, [b"c"])
    classes.erase(db, model.id, 1)

    stored = {table: list(db.scalars(select(table.class_id))) for table in (Shot, GuardImage)}
    assert stored == {Shot: [2, 2], GuardImage: [2]}
    with pytest.raises(NotThere):
        classes.erase(db, model.id, 1)


@pytest.mark.usefixtures("taught")
def test_the_guard_set_has_guard_images_or_else_shots(db: Session, model: Model) -> None:
    """Never both of one class, and nothing of a class that was not asked for."""
    classes.add_guard(db, model.id, 1, [b"guard 1"])
    for class_id in (1, 2, 3):
        classes.add_shots(db, model.id, class_id, [b"shot %d" % class_id])

    chosen = classes.guard_set(db, model.id, [1, 2, 4], 10)

    assert {(image.class_id, image.data) for image in chosen} == {(1, b"guard 1"), (2, b"shot 2")}


@pytest.mark.usefixtures("taught")
@pytest.mark.parametrize(("limit", "depths"), [(0, []), (2, [1, 1]), (3, [1, 1, 1]), (4, [1, 1, 2]), (9, [1, 3, 3])])
def test_a_limit_drops_images_and_not_classes(db: Session, model: Model, limit: int, depths: list[int]) -> None:
    """One of each class before a second of any."""
    classes.add_guard(db, model.id, 1, [b"guard 1a", b"guard 1b", b"guard 1c"])
    classes.add_shots(db, model.id, 2, [b"shot 2a", b"shot 2b", b"shot 2c"])
    classes.add_shots(db, model.id, 3, [b"shot 3a"])

    chosen = [image.class_id for image in classes.guard_set(db, model.id, [1, 2, 3], limit)]

    assert sorted(chosen.count(class_id) for class_id in set(chosen)) == depths


@pytest.mark.usefixtures("taught")
def test_the_guard_set_does_not_depend_on_the_order_of_storing(db: Session, model: Model) -> None:
    """So two sessions, and two databases, are measured on the same ones."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    for name in ("wren", "robin"):
        classes.add(db, other, name, shots=5, since=ONE)
    images = [b"%d" % number for number in range(9)]
    for class_id in (1, 2):
        classes.add_shots(db, model.id, class_id, images)
        classes.add_shots(db, other.id, 3 - class_id, images[::-1])

    chosen = [
        {(image.class_id, image.data) for image in classes.guard_set(db, of.id, [1, 2], 6)}
        for of in (model, model, other)
    ]

    assert chosen[0] == chosen[1] == chosen[2]
    assert len(chosen[0]) == 6
    assert db.execute(select(func.count()).select_from(Shot)).scalar_one() == 36


def test_classes_with_all_of_their_shots_stored_are_told_from_those_of_a_base_session(
    db: Session, model: Model
) -> None:
    """Of a base class nothing is stored, or only what it was shown later; what was deleted is gone."""
    wren, jay, gone = (classes.add(db, model, name, shots=2, since=ONE) for name in ("wren", "jay", "gone"))
    base = classes.add(db, model, "robin", shots=30, since=ONE, status="learned")
    shown_more = classes.add(db, model, "heron", shots=31, since=ONE, status="learned")
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    van = classes.add(db, other, "van", shots=1, since=ONE)
    for row, count in ((wren, 2), (jay, 2), (gone, 2), (shown_more, 1), (van, 1)):
        classes.add_shots(db, row.model_id, row.id, [f"{row.name} {number}".encode() for number in range(count)])
    classes.erase(db, model.id, gone.id)
    asked = ids([wren, jay, gone, base, shown_more])

    assert classes.wholly_stored(db, model.id, asked, 4) == ids([wren, jay])
    assert classes.wholly_stored(db, model.id, asked, 3) == []  # all or none: a part would be learned better
    assert classes.wholly_stored(db, model.id, [jay.id], 3) == [jay.id]
    assert classes.wholly_stored(db, model.id, [], 3) == []


@pytest.mark.usefixtures("taught")
def test_a_shot_is_deleted_or_becomes_another_class_s(db: Session, model: Model) -> None:
    """The others stay where they are; a shot of another model is left alone."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    classes.add(db, other, "van", shots=1, since=ONE)
    classes.add_shots(db, other.id, 1, [b"van"])
    classes.add_shots(db, model.id, 1, [b"a", b"b", b"c"])
    first, second, _ = classes.shot_keys(db, model.id, 1)
    (foreign,) = classes.shot_keys(db, other.id, 1)

    classes.delete_shot(db, model.id, first)
    classes.delete_shot(db, model.id, foreign)
    classes.move_shot(db, model.id, second, 2)

    assert [(one.class_id, one.data) for one in classes.shots_of(db, model.id, [1, 2])] == [(2, b"b"), (1, b"c")]
    assert classes.count_stored_shots(db, other.id, 1) == 1


@pytest.mark.usefixtures("taught")
def test_all_images_of_a_class_become_another_one_s(db: Session, model: Model) -> None:
    """Guard images too; erasing the class afterwards erases none of them."""
    classes.add_shots(db, model.id, 1, [b"a", b"b"])
    classes.add_guard(db, model.id, 1, [b"g"])

    classes.move_images(db, model.id, 1, 2)
    classes.erase(db, model.id, 1)

    assert [one.data for one in classes.shots_of(db, model.id, [1, 2])] == [b"a", b"b"]
    assert [one.data for one in classes.guard_set(db, model.id, [2], 10)] == [b"g"]
