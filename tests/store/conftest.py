"""What the tests of the store share: one transaction to work in, and a model in it."""

from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

from store import catalogue
from store.database import Database
from store.models import Model


@pytest.fixture
def db(database: Database) -> Iterator[Session]:
    """A transaction that writes, for as long as the test lasts."""
    with database.write() as db:
        yield db


@pytest.fixture
def model(db: Session) -> Model:
    return catalogue.create(db, "birds", "resnet18", 1.0)
