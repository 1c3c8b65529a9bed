"""Pages of classes: searched, sorted, whole however they are cut."""

import pytest
from sqlalchemy.orm import Session

from store import class_pages, classes
from store.class_pages import Wanted
from store.models import Model, VersionNumber

SHOTS = {"wren": 5, "Äsche": 3, "robin": 9, "Red Kite": 3, "100%_sure": 1}
ACCURACY = {1: 0.8, 3: 1.0, 4: 0.2}


@pytest.fixture(autouse=True)
def _taught(db: Session, model: Model) -> None:
    for name, shots in SHOTS.items():
        classes.add(db, model, name, shots=shots, since=VersionNumber(1))


def names(db: Session, model: Model, wanted: Wanted, limit: int = 2) -> list[str]:
    """All pages, one after the other."""
    found: list[str] = []
    after = None
    while True:
        part = class_pages.page(db, model.id, wanted, after=after, limit=limit, accuracy=lambda: ACCURACY)
        found += [row.name for row in part.rows]
        if not part.more:
            return found
        after = part.rows[-1].id


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(), ["wren", "Äsche", "robin", "Red Kite", "100%_sure"]),
        (Wanted(descending=True), ["100%_sure", "Red Kite", "robin", "Äsche", "wren"]),
        (Wanted(sort="name"), ["100%_sure", "Red Kite", "robin", "wren", "Äsche"]),
        (Wanted(sort="shots"), ["100%_sure", "Äsche", "Red Kite", "wren", "robin"]),
        (Wanted(sort="accuracy"), ["Red Kite", "wren", "robin", "Äsche", "100%_sure"]),
        (Wanted(sort="accuracy", descending=True), ["robin", "wren", "Red Kite", "100%_sure", "Äsche"]),
    ],
)
def test_pages_are_in_the_order_that_was_asked_for(
    db: Session, model: Model, wanted: Wanted, expected: list[str], limit: int
) -> None:
    """Each class once; those that were not measured come last in either direction."""
    assert names(db, model, wanted, limit) == expected


@pytest.mark.parametrize(
    ("search", "expected"),
    [("r", ["wren", "robin", "Red Kite", "100%_sure"]), ("äS", ["Äsche"]), ("%_", ["100%_sure"]), (" ", list(SHOTS))],
)
def test_a_search_finds_a_part_of_the_name_in_any_case(
    db: Session, model: Model, search: str, expected: list[str]
) -> None:
    """Beyond ASCII too, and no character is special; the total counts what matches."""
    found = class_pages.page(db, model.id, Wanted(search), after=None, limit=2)

    assert names(db, model, Wanted(search)) == expected
    assert found.total == len(expected)


def test_a_class_that_was_deleted_between_two_pages_keeps_its_place(db: Session, model: Model) -> None:
    """What follows it is neither skipped nor listed again."""
    first = class_pages.page(db, model.id, Wanted(sort="name"), after=None, limit=3)
    classes.erase(db, model.id, first.rows[-1].id)

    second = class_pages.page(db, model.id, Wanted(sort="name"), after=first.rows[-1].id, limit=3)

    assert [row.name for row in second.rows] == ["wren", "Äsche"]
    assert (first.total, second.total) == (5, 4)
