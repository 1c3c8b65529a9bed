"""What the tests of the store share: one transaction to work in, and a model in it."""

from collections.abc import Iterator

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from store import catalogue
from store.database import Database
from store.lineage import lineage_of
from store.models import Model, ModelId


@pytest.fixture
def db(database: Database) -> Iterator[Session]:
    """A transaction that writes, for as long as the test lasts."""
    with database.write() as db:
        yield db


@pytest.fixture
def model(db: Session) -> Model:
    return catalogue.create(db, "birds", "resnet18", 1.0)


def numbers_of_lineage(db: Session, model_id: ModelId, number: int) -> list[int]:
    """The version and its ancestors, newest first."""
    line = lineage_of(model_id, number)
    return list(db.scalars(select(line.c.number).order_by(line.c.number.desc())))
