"""The stored images of a class, one by one: pages over two tables, and what is known of each image."""

import pytest
from sqlalchemy.orm import Session

from store import classes, images
from store.errors import NotThere
from store.images import Stored
from store.models import Model, VersionNumber

ONE = VersionNumber(1)


@pytest.fixture
def wren(db: Session, model: Model) -> int:
    """A class of three shots and two guard images, beside another class."""
    own = classes.add(db, model, "wren", shots=9, since=ONE).id
    other = classes.add(db, model, "robin", shots=1, since=ONE).id
    classes.add_shots(db, model.id, own, [b"a", b"bb"], filenames=["photos/a.jpg", None])
    classes.add_shots(db, model.id, other, [b"other"])
    classes.add_shots(db, model.id, own, [b"ccc"], [b"c"])
    classes.add_guard(db, model.id, own, [b"dddd", b"eeeee"])
    return own


def test_pages_have_shots_and_then_guard_images(db: Session, model: Model, wren: int) -> None:
    """Each image once, however the pages are cut; another class's are not among them."""
    for limit in (1, 2, 3, 4, 10):
        sizes: list[int] = []
        after = None
        while part := images.page(db, model.id, wren, after=after, limit=limit):
            sizes += [one.bytes for one in part]
            after = part[-1].id

        assert sizes == [1, 2, 3, 4, 5]
    assert images.count(db, model.id, wren) == 5


def test_an_image_is_named_by_one_number(db: Session, model: Model, wren: int) -> None:
    """Below zero for a guard image; its name is that of its file without folders, and its time is kept."""
    listed = images.page(db, model.id, wren, after=None, limit=10)

    assert [one.kind for one in listed] == ["shot"] * 3 + ["guard"] * 2
    assert [one.filename for one in listed] == ["a.jpg", None, None, None, None]
    assert [one.created_at is not None for one in listed] == [True] * 3 + [False] * 2
    assert [images.get(db, model.id, wren, one.id) for one in listed] == listed
    assert [images.data(db, one.id) for one in listed] == [b"a", b"bb", b"ccc", b"dddd", b"eeeee"]
    assert [images.small_form(db, one.id) for one in listed] == [b"a", b"bb", b"c", b"dddd", b"eeeee"]


@pytest.mark.parametrize("number", [0, 10**6, -(10**6), 2**63, -(2**63)])
def test_an_image_that_does_not_exist_is_not_found(db: Session, model: Model, wren: int, number: int) -> None:
    """Nor one of another class."""
    with pytest.raises(NotThere, match=f"class {wren} has no image"):
        images.get(db, model.id, wren, number)

    (other,) = images.page(db, model.id, wren + 1, after=None, limit=10)
    with pytest.raises(NotThere):
        images.get(db, model.id, wren, other.id)


def test_what_is_stored_of_many_classes_is_read_at_once(db: Session, model: Model, wren: int) -> None:
    """The first shot is the one to show; of a base class it is a guard image."""
    base = classes.add(db, model, "heron", shots=30, since=ONE).id
    classes.add_guard(db, model.id, base, [b"heron"])
    first = images.page(db, model.id, wren, after=None, limit=1)[0].id
    (guard,) = images.page(db, model.id, base, after=None, limit=1)

    found = images.stored(db, model.id, [wren, base, 99])

    assert found == {wren: Stored(3, first), base: Stored(0, guard.id)}
    assert guard.id < 0
