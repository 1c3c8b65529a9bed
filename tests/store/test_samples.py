"""Samples: bounded in number, bytes and age; taken once; gone with their bytes."""

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from migrations import schema
from store import catalogue, samples
from store.database import Database, now
from store.errors import NotThere
from store.models import Model, Sample
from store.samples import Bounds, NewSample

Until = Callable[[Callable[[], Any], str], None]
MANY = Bounds(images=100, bytes=10**6, days=30)


def add(db: Session, model: Model, own_id: int, data: bytes = b"image") -> None:
    top = {"top": [{"class_id": 1, "confidence": 0.5, "distance": 0.25}]}
    samples.add(db, [NewSample(own_id, model.id, 3, 2, True, 0.5, 0.25, top, b"feature", data)])


def ids(db: Session, model: Model) -> list[int]:
    return [one.id for one in samples.everything(db, model.id)]


def test_samples_are_kept_as_they_were_given(db: Session, model: Model) -> None:
    """Newest first; another model has its own."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    add(db, model, 2**52, b"one")
    add(db, model, 2**52 + 1, b"other")
    add(db, other, 7)

    found = samples.get(db, model.id, 2**52)

    assert ids(db, model) == [2**52 + 1, 2**52]
    assert (found.version, found.weights, found.unknown, found.margin, found.feature) == (3, 2, True, 0.25, b"feature")
    assert found.sha256 == sha256(b"one").hexdigest()
    assert samples.data(db, model.id, 2**52) == b"one"
    assert (samples.count(db, model.id), samples.newest(db, model.id)) == (2, 2**52 + 1)
    with pytest.raises(NotThere):
        samples.get(db, model.id, 7)


@pytest.mark.parametrize(
    ("bounds", "left"),
    [(MANY, [3, 2, 1]), (Bounds(2, 10**6, 30), [3, 2]), (Bounds(100, 25, 30), [3, 2]), (Bounds(100, 10**6, 3), [3, 2])],
)
def test_the_oldest_beyond_a_bound_are_erased(db: Session, model: Model, bounds: Bounds, left: list[int]) -> None:
    """By number, by bytes, by age."""
    for own_id in (1, 2, 3):
        add(db, model, own_id, bytes(10))
    db.execute(update(Sample).where(Sample.id == 1).values(created_at=now(db) - timedelta(days=10)))

    gone = samples.enforce(db, model.id, bounds)

    assert (ids(db, model), gone) == (left, 3 - len(left))


def test_a_sample_is_taken_once(database: Database) -> None:
    """If one of them is gone, none is taken."""
    with database.write() as db:
        model = catalogue.create(db, "birds", "resnet18", 1.0)
        for own_id in (1, 2, 3):
            add(db, model, own_id)
        samples.take(db, model.id, [1, 1])

    with pytest.raises(NotThere), database.write() as db:
        samples.take(db, model.id, [2, 1])

    with database.read() as db:
        assert ids(db, model) == [3, 2]


def test_an_inbox_can_be_emptied(db: Session, model: Model) -> None:
    """Of this model alone."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    add(db, model, 1)
    add(db, other, 2)

    samples.clear(db, model.id)

    assert (ids(db, model), ids(db, other)) == ([], [2])


@pytest.mark.parametrize("act", [lambda db, own: samples.take(db, own, [1]), lambda db, own: samples.clear(db, own)])
def test_the_bytes_of_a_sample_leave_every_file(tmp_path: Path, until: Until, act: Any) -> None:
    """As those of a deleted shot do."""
    file = tmp_path / "protoquad.db"
    data = b"".join(sha256(str(block).encode()).digest() for block in range(500))

    def found() -> bool:
        raw = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("protoquad.db*")))
        return any(data[start : start + 32] in raw for start in range(0, len(data), 32))

    with closing(Database(f"sqlite:///{file}")) as database:
        schema.upgrade(database)
        with database.write() as db:
            model = catalogue.create(db, "birds", "resnet18", 1.0)
            add(db, model, 1, data)
        assert found()
        with database.write() as db:
            act(db, model.id)

        until(lambda: not found(), "the sample is gone")
