"""Measurements: the newest of each image along a lineage, gone with the image, pruned with the versions."""

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store import classes, measurements, pruning, versions
from store.measurements import Counts, Measured
from store.models import Measurement, Model, VersionNumber
from store.versions import NewVersion


@pytest.fixture
def shots(db: Session, model: Model) -> list[int]:
    """Of two classes, two shots each."""
    for name in ("wren", "robin"):
        own = classes.add(db, model, name, shots=2, since=VersionNumber(1))
        classes.add_shots(db, model.id, own.id, [f"{name} {number}".encode() for number in range(2)])
    return [key for own in (1, 2) for key in classes.shot_keys(db, model.id, own)]


def measured(image: int, class_id: int, nearest: int) -> Measured:
    return Measured(image, class_id, nearest, 0.25, 0.5, refused=False, harmful=None)


def add(db: Session, model: Model, *rows: Measured, parent: int | None = None, kind: str = "provisional") -> int:
    start = versions.get(db, model.id, model.head if parent is None else parent)
    weights = b"weights" if kind == "incremental" else None
    new = NewVersion(kind, start, classes=2, temperature=1.0, threshold=None, weights=weights, measurements=rows)
    return versions.add(db, model, new).number


def answers(db: Session, model: Model, number: int) -> dict[int, tuple[int, int]]:
    return {one.image: (one.nearest, one.version) for one in measurements.newest(db, model.id, number)}


def test_the_newest_measurement_of_each_image_holds(db: Session, model: Model, shots: list[int]) -> None:
    """As of that version: a later one changes nothing about an earlier one."""
    first = add(db, model, *(measured(shot, 1, 1) for shot in shots[:2]))
    second = add(db, model, measured(shots[1], 1, 2), measured(shots[2], 2, 2))

    assert answers(db, model, first) == {shots[0]: (1, 1), shots[1]: (1, 1)}
    assert answers(db, model, second) == {shots[0]: (1, 1), shots[1]: (2, 2), shots[2]: (2, 2)}
    assert answers(db, model, 0) == {}
    assert [one.image for one in measurements.newest_of(db, model.id, second, [2])] == [shots[2]]
    assert measurements.accuracy(db, model.id, second) == {1: 0.5, 2: 1.0}


def test_another_branch_has_its_own(db: Session, model: Model, shots: list[int]) -> None:
    """What a version measured does not hold for one that does not descend from it."""
    first = add(db, model, measured(shots[0], 1, 1))
    add(db, model, measured(shots[0], 1, 2))
    other = add(db, model, measured(shots[1], 1, 1), parent=first)

    assert answers(db, model, other) == {shots[0]: (1, 1), shots[1]: (1, 3)}


def test_shots_and_guard_images_are_told_apart(db: Session, model: Model, shots: list[int]) -> None:
    """Their ids may be the same; a guard image has the negative."""
    classes.add_guard(db, model.id, 1, [b"guard"])
    (guard,) = classes.guard_keys(db, model.id, 1)
    number = add(db, model, measured(shots[0], 1, 1), measured(-guard, 1, 2))

    assert answers(db, model, number) == {shots[0]: (1, 1), -guard: (2, 1)}


def test_a_measurement_is_gone_with_its_image(db: Session, model: Model, shots: list[int]) -> None:
    """Whether a shot is deleted or its whole class."""
    add(db, model, *(measured(shot, 1 + place // 2, 1) for place, shot in enumerate(shots)))

    classes.delete_shot(db, model.id, shots[0])
    classes.erase(db, model.id, 2)

    assert list(answers(db, model, 1)) == [shots[1]]


def test_pruning_keeps_what_a_kept_version_reads(db: Session, model: Model, shots: list[int]) -> None:
    """And drops what only dropped versions have read."""
    for number in range(5):
        rows = [measured(shots[0], 1, 1)] + ([measured(shots[1], 1, 2)] if number == 0 else [])
        add(db, model, *rows, kind="incremental")
    before = answers(db, model, 5), answers(db, model, 4)

    pruning.prune(db, model, 2)

    left = db.execute(select(func.count()).select_from(Measurement)).scalar_one()
    assert (answers(db, model, 5), answers(db, model, 4)) == before
    assert left == 3  # of the last two versions, and the only one of the other shot


@pytest.mark.parametrize(
    ("right", "images", "low", "high"), [(5, 5, 0.566, 1.0), (0, 5, 0.0, 0.434), (81, 263, 0.255, 0.366)]
)
def test_the_interval_is_wilson_s(right: int, images: int, low: float, high: float) -> None:
    """The last is the example of Newcombe (1998)."""
    assert Counts(images, right, 0).interval == pytest.approx((low, high), abs=6e-4)
