"""Versions: one numbered history with branches, in which every version's bank stays what it was."""

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.orm import Session

from store import bank_rows, catalogue, classes, lineage, pruning, versions
from store.bank_rows import KnownClass, PrototypeRow, StatisticsRow
from store.database import batched
from store.errors import Conflict, NotThere
from store.models import Model, Version
from tests.store.conftest import numbers_of_lineage

CLASSES = 4


@pytest.fixture
def model(db: Session, model: Model) -> Model:
    """With a few classes, for prototypes belong to classes."""
    for number in range(CLASSES):
        classes.add(db, model, f"class {number + 1}", shots=5, since=catalogue.UNTAUGHT)
    return model


def new(class_id: int, vector: bytes, shots: int = 5, held_out: bytes | None = None) -> PrototypeRow:
    return PrototypeRow(class_id, vector, shots, restart=True, held_out=held_out)


def moved(class_id: int, vector: bytes, shots: int = 5) -> PrototypeRow:
    return PrototypeRow(class_id, vector, shots, restart=False)


def gone(class_id: int) -> PrototypeRow:
    return PrototypeRow(class_id, None, 0, restart=True)


def told(class_id: int, text: bytes) -> StatisticsRow:
    return StatisticsRow(class_id, b"mean " + text, b"factor " + text)


def write(
    db: Session, model: Model, *prototypes: PrototypeRow, on: int | None = None, kind: str = "provisional", **more: Any
) -> int:
    """A version on top of the one that is served, or of another."""
    parent = versions.get(db, model.id, model.head if on is None else on)
    return versions.add(
        db,
        model,
        versions.NewVersion(
            kind,
            parent=parent,
            classes=CLASSES,
            temperature=1.0,
            threshold=0.5,
            prototypes=prototypes,
            **more,
        ),
    ).number


def reject(db: Session, model: Model, **details: Any) -> int:
    return write(db, model, kind="incremental", verdict="rejected", serve=False, details=details)


def bank(db: Session, model: Model, number: int) -> dict[int, bytes]:
    return {row.class_id: row.copies[-1] for row in bank_rows.read_bank(db, model.id, number)}


def only(rows: Sequence[KnownClass]) -> KnownClass:
    (row,) = rows
    return row


# The history


def test_versions_are_numbered_in_order_and_the_newest_is_served(db: Session, model: Model) -> None:
    """Each stands on the one before it."""
    made = [versions.get(db, model.id, write(db, model)) for _ in range(3)]

    assert [(version.number, version.parent) for version in made] == [(1, 0), (2, 1), (3, 2)]
    assert (model.head, model.last_version) == (3, 3)
    assert numbers_of_lineage(db, model.id, 3) == [3, 2, 1, 0]


def test_a_version_without_weights_uses_those_of_its_parent(db: Session, model: Model) -> None:
    """A refined one has its own, stored once; a base version is also its own base."""
    write(db, model, kind="base", weights=b"base")
    write(db, model)
    write(db, model, kind="incremental", weights=b"refined")
    write(db, model, kind="delete")

    history = versions.page(db, model.id, before=None, limit=10)[::-1]
    assert [(version.number, version.base, version.weights) for version in history] == [
        (0, 0, 0),
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 3),
        (4, 1, 3),
    ]
    assert [versions.weights(db, model.id, number) for number in range(5)] == [None, b"base", None, b"refined", None]


@pytest.mark.parametrize("number", [-(2**63), -1, 2, 2**31 - 1, 2**31, 2**63, 10**30])
def test_any_number_that_is_no_version_is_not_there(db: Session, model: Model, number: int) -> None:
    """Also one that no column could hold; the refusal names the newest."""
    write(db, model)

    with pytest.raises(NotThere, match=f"version {number} does not exist; the newest is 1"):
        versions.get(db, model.id, number)


def test_pages_follow_each_other_by_the_last_number_seen(db: Session, model: Model) -> None:
    """Newest first; a version made between two pages shifts nothing."""
    for _ in range(4):
        write(db, model)
    first = versions.page(db, model.id, before=None, limit=2)
    write(db, model)
    second = versions.page(db, model.id, before=first[-1].number, limit=2)
    last = versions.page(db, model.id, before=second[-1].number, limit=2)

    assert [version.number for version in first + second + last] == [4, 3, 2, 1, 0]
    assert versions.page(db, model.id, before=0, limit=2) == []


def test_models_do_not_see_each_others_versions(db: Session, model: Model) -> None:
    """The same numbers, other content."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    classes.add(db, other, "van", shots=5, since=catalogue.UNTAUGHT)
    write(db, model, new(1, b"wren"), statistics=[told(1, b"wren")])
    write(db, other, new(1, b"van"), weights=b"weights")

    assert (bank(db, model, 1), bank(db, other, 1)) == ({1: b"wren"}, {1: b"van"})
    assert only(bank_rows.read_bank(db, other.id, 1, copies=5)).mean is None
    assert versions.weights(db, model.id, 1) is None
    assert [version.model_id for version in versions.page(db, other.id, before=None, limit=9)] == [other.id] * 2


def test_a_branch_does_not_descend_from_what_it_left(db: Session, model: Model) -> None:
    """Nor a version from a later one; each descends from itself."""
    for on in (0, 1, 1, 3):
        write(db, model, on=on)

    assert numbers_of_lineage(db, model.id, 4) == [4, 3, 1, 0]
    assert [lineage.descends(db, model.id, 4, ancestor) for ancestor in range(6)] == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert not lineage.descends(db, model.id, 1, 4)


# What may be served


def test_a_rejected_version_is_never_served(db: Session, model: Model) -> None:
    """It has a number and a reason, and the head stays where it was."""
    write(db, model)
    rejected = reject(db, model, reason="it forgot the wren")

    assert (model.head, rejected) == (1, 2)
    with pytest.raises(Conflict, match=r"rejected by the gate .*: it forgot the wren"):
        versions.activate(db, model, rejected, living=[])
    assert model.head == 1


def test_a_version_whose_content_is_gone_cannot_be_served(db: Session, model: Model) -> None:
    """The refusal names the setting that decides how many are kept."""
    for weights in (b"1", b"2"):
        write(db, model, kind="incremental", weights=weights)
    pruning.prune(db, model, keep=1)

    with pytest.raises(Conflict, match="PROTOQUAD_KEEP_VERSIONS"):
        versions.activate(db, model, 1, living=[])
    assert versions.servable(db, model.id, 2).number == 2


def test_an_old_version_can_be_served_again(db: Session, model: Model) -> None:
    """It is the same version; the next number is not given out a second time."""
    write(db, model, new(1, b"a"))
    write(db, model, new(2, b"b"))
    served = versions.activate(db, model, 1, living=[1, 2])

    assert (served.number, model.head, model.last_version) == (1, 1, 2)
    assert write(db, model) == 3


def test_what_was_deleted_does_not_come_back_with_an_old_version(db: Session, model: Model) -> None:
    """A version without it is made on top of the old one, and served instead."""
    write(db, model, new(1, b"a"), new(2, b"b"), details={"note": 1})
    write(db, model, gone(2), kind="delete")
    served = versions.activate(db, model, 1, living=[1, 3])

    assert (served.number, served.kind, served.parent, served.classes) == (3, "rollback", 1, 1)
    assert served.details == {"note": 1, "without": [2]}
    assert model.head == 3
    assert bank(db, model, 3) == {1: b"a"}
    assert bank(db, model, 1) == {1: b"a", 2: b"b"}


# The bank of a version


def test_a_bank_is_each_classs_newest_prototype(db: Session, model: Model) -> None:
    """By class id; a version writes only what it changed."""
    write(db, model, new(2, b"2 first", held_out=b"far"), new(1, b"1 first"))
    write(db, model, moved(1, b"1 second", shots=9))

    assert bank_rows.read_bank(db, model.id, 2) == [
        KnownClass(1, 9, b"1 second", (b"1 second",), None),
        KnownClass(2, 5, b"2 first", (b"2 first",), b"far"),
    ]
    assert bank(db, model, 1) == {1: b"1 first", 2: b"2 first"}
    assert bank(db, model, 0) == {}


def test_each_branch_keeps_its_own_bank(db: Session, model: Model) -> None:
    """Activate an old version and add on top: no version's bank changes, whatever lies between by number."""
    write(db, model, new(1, b"1"))  # 1
    write(db, model, moved(1, b"1 left"), new(2, b"2 left"))  # 2
    reject(db, model)  # 3
    versions.activate(db, model, 1, living=range(9))
    write(db, model, new(3, b"3 right"))  # 4 on 1
    reject(db, model)  # 5
    write(db, model, moved(1, b"1 right"))  # 6 on 4
    versions.activate(db, model, 2, living=range(9))
    write(db, model, moved(2, b"2 left again"))  # 7 on 2

    assert {number: bank(db, model, number) for number in (0, 1, 2, 4, 6, 7)} == {
        0: {},
        1: {1: b"1"},
        2: {1: b"1 left", 2: b"2 left"},
        4: {1: b"1", 3: b"3 right"},
        6: {1: b"1 right", 3: b"3 right"},
        7: {1: b"1 left", 2: b"2 left again"},
    }


def test_a_deleted_class_is_in_no_bank_from_then_on(db: Session, model: Model) -> None:
    """Older versions still know it."""
    write(db, model, new(1, b"1"), new(2, b"2"))
    write(db, model, gone(1), kind="delete")
    write(db, model, moved(2, b"2 moved"))

    assert bank(db, model, 1) == {1: b"1", 2: b"2"}
    assert bank(db, model, 3) == {2: b"2 moved"}
    assert [row.class_id for row in bank_rows.read_bank(db, model.id, 3, copies=5)] == [2]
    assert bank_rows.class_ids(db, model.id, 3) == [2]
    assert bank_rows.class_ids(db, model.id, 1) == [1, 2]


def test_one_class_can_be_asked_for(db: Session, model: Model) -> None:
    """Its newest prototype in this line; nothing if the line does not know it."""
    write(db, model, new(1, b"1", held_out=b"far"), new(2, b"2"))
    write(db, model, moved(1, b"1 left"))
    write(db, model, gone(2), on=1, kind="delete")

    assert bank_rows.prototype(db, model.id, 3, 1) == new(1, b"1", held_out=b"far")
    assert bank_rows.prototype(db, model.id, 2, 1) == moved(1, b"1 left")
    assert bank_rows.prototype(db, model.id, 3, 2) is None
    assert bank_rows.prototype(db, model.id, 3, 3) is None


def test_changes_are_what_was_written_since(db: Session, model: Model) -> None:
    """The newest of each class, deletions too; a version that does not descend cannot be reached by changes."""
    write(db, model, new(1, b"1"), new(2, b"2"))
    write(db, model, moved(1, b"1 second"))
    write(db, model, moved(1, b"1 third"), gone(2))
    write(db, model, new(3, b"3"), on=1)

    changed = bank_rows.changes(db, model.id, 1, 3)
    assert changed is not None
    assert sorted(changed, key=lambda row: row.class_id) == [moved(1, b"1 third"), gone(2)]
    assert bank_rows.changes(db, model.id, 3, 3) == []
    assert bank_rows.changes(db, model.id, 1, 4) == [new(3, b"3")]
    assert bank_rows.changes(db, model.id, 2, 4) is None
    assert bank_rows.changes(db, model.id, 3, 1) is None


# Copies, for learning


def test_copies_are_the_newest_so_many_with_the_first_of_all(db: Session, model: Model) -> None:
    """Newest last; c₀ is where the class began, however long ago."""
    write(db, model, new(1, b"0"))
    for copy in (b"1", b"2", b"3"):
        write(db, model, moved(1, copy))

    found = {copies: only(bank_rows.read_bank(db, model.id, 4, copies=copies)) for copies in (2, 3, 4, 5)}
    assert {copies: row.copies for copies, row in found.items()} == {
        2: (b"2", b"3"),
        3: (b"1", b"2", b"3"),
        4: (b"0", b"1", b"2", b"3"),
        5: (b"0", b"1", b"2", b"3"),
    }
    assert {row.initial for row in found.values()} == {b"0"}


def test_copies_reach_back_no_further_than_the_class_was_learned_anew(db: Session, model: Model) -> None:
    """Earlier copies are of other images, and c₀ is the new beginning."""
    write(db, model, new(1, b"old"))
    write(db, model, moved(1, b"old moved"))
    write(db, model, new(1, b"anew", shots=8))
    assert only(bank_rows.read_bank(db, model.id, 3, copies=5)) == KnownClass(1, 8, b"anew", (b"anew",), None)

    write(db, model, moved(1, b"anew moved", shots=8))
    row = only(bank_rows.read_bank(db, model.id, 4, copies=5))
    assert (row.initial, row.copies) == (b"anew", (b"anew", b"anew moved"))
    row = only(bank_rows.read_bank(db, model.id, 2, copies=5))
    assert (row.initial, row.copies) == (b"old", (b"old", b"old moved"))


def test_copies_of_another_branch_are_not_counted(db: Session, model: Model) -> None:
    """Each line has its own past."""
    write(db, model, new(1, b"0"))
    write(db, model, moved(1, b"left"))
    write(db, model, new(1, b"left anew"))
    write(db, model, moved(1, b"right"), on=1)

    row = only(bank_rows.read_bank(db, model.id, 4, copies=5))
    assert (row.initial, row.copies) == (b"0", (b"0", b"right"))


def test_statistics_are_the_newest_of_the_line(db: Session, model: Model) -> None:
    """Those of a branch or of a later version are not, and serving needs none at all."""
    write(db, model, new(1, b"0"), statistics=[told(1, b"first")])
    write(db, model, moved(1, b"1"), statistics=[told(1, b"second")])
    write(db, model, moved(1, b"2"), on=1, statistics=[told(1, b"branch")])
    write(db, model, moved(1, b"3"), on=2)

    means = {number: only(bank_rows.read_bank(db, model.id, number, copies=5)).mean for number in (1, 2, 3, 4)}
    assert means == {1: b"mean first", 2: b"mean second", 3: b"mean branch", 4: b"mean second"}
    assert only(bank_rows.read_bank(db, model.id, 2, copies=5)).factor == b"factor second"
    assert only(bank_rows.read_bank(db, model.id, 2)).mean is None


def test_statistics_from_before_a_class_was_learned_anew_do_not_count(db: Session, model: Model) -> None:
    """They are of the class as it was; those told since do."""
    write(db, model, new(1, b"old"), new(2, b"other"), statistics=[told(1, b"old"), told(2, b"other")])
    write(db, model, new(1, b"anew"))
    write(db, model, moved(1, b"anew moved"), statistics=[told(1, b"anew")])

    assert [row.mean for row in bank_rows.read_bank(db, model.id, 2, copies=5)] == [None, b"mean other"]
    assert [row.mean for row in bank_rows.read_bank(db, model.id, 3, copies=5)] == [b"mean anew", b"mean other"]


def test_batches_are_runs_of_at_most_so_many() -> None:
    """Nothing is lost at the end."""
    assert list(batched([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
    assert list(batched([], 2)) == []


def test_a_version_remembers_when_and_by_which_session(db: Session, model: Model) -> None:
    """Nothing else changes in it afterwards."""
    number = write(db, model, new(1, b"0"))
    version: Version = versions.get(db, model.id, number)

    assert version.session_id is None
    assert version.created_at >= versions.get(db, model.id, 0).created_at
