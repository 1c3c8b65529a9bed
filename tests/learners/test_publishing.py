"""There is one way to change a model: prepare on the head, write if it is still the head, else prepare again."""

from collections.abc import Callable

import pytest
from sqlalchemy.orm import Session

from engine.single_flight import Busy
from learners.publishing import Draft, on_head, publish
from store import catalogue, versions
from store.database import Database
from store.errors import Conflict, NotThere
from store.models import Model, ModelId, VersionNumber
from store.versions import NewVersion


@pytest.fixture
def model_id(database: Database) -> ModelId:
    with database.write() as db:
        return catalogue.create(db, "birds", "resnet32", 1.0).id


def add(db: Session, model: Model) -> VersionNumber:
    """A version on top of the head."""
    parent = versions.get(db, model.id, model.head)
    new = NewVersion("provisional", parent, classes=0, temperature=1.0, threshold=None)
    return versions.add(db, model, new).number


def overtake(database: Database, model_id: ModelId) -> None:
    """What another process does."""
    with database.write() as db:
        add(db, catalogue.locked(db, model_id))


def drafts(database: Database, model_id: ModelId, before_writing: Callable[[int], None]) -> Callable[[], Draft[int]]:
    """Prepares a version on the head; `before_writing` is called with the number of drafts so far."""
    prepared: list[int] = []

    def prepare() -> Draft[int]:
        with database.read() as db:
            head = catalogue.get(db, "birds").head
        prepared.append(head)
        before_writing(len(prepared))
        return Draft(on_head(model_id, head), add)

    return prepare


def test_what_was_prepared_on_the_head_is_written(database: Database, model_id: ModelId) -> None:
    """Once, with one preparation."""
    number = publish(database, drafts(database, model_id, lambda _: None))

    with database.read() as db:
        assert (number, catalogue.get(db, "birds").head) == (1, 1)


def test_a_head_that_has_moved_is_prepared_for_again(database: Database, model_id: ModelId) -> None:
    """Nothing of the first draft is written, and the caller catches up in between."""
    caught_up: list[None] = []

    def once(number: int) -> None:
        if number == 1:
            overtake(database, model_id)

    number = publish(database, drafts(database, model_id, once), catch_up=lambda: caught_up.append(None))

    with database.read() as db:
        assert (number, versions.get(db, model_id, 2).parent) == (2, 1)
    assert len(caught_up) == 1


def test_a_model_that_never_stands_still_is_given_up(database: Database, model_id: ModelId) -> None:
    """After the last attempt it says that the same may succeed later, and has written nothing."""
    with pytest.raises(Busy, match="change this model all the time"):
        publish(database, drafts(database, model_id, lambda _: overtake(database, model_id)), attempts=3)

    with database.read() as db:
        assert catalogue.get(db, "birds").last_version == 3  # those of the other process


def test_an_error_while_writing_leaves_nothing(database: Database, model_id: ModelId) -> None:
    """The version and whatever else the transaction wrote are gone, and it is not tried again."""

    def write(db: Session, model: Model) -> None:
        add(db, model)
        raise Conflict("no")

    with pytest.raises(Conflict):
        publish(database, lambda: Draft(on_head(model_id, 0), write))

    with database.read() as db:
        assert catalogue.get(db, "birds").last_version == 0


def test_a_model_that_was_deleted_meanwhile_is_not_there(database: Database, model_id: ModelId) -> None:
    """It is not made again."""

    def delete(_: int) -> None:
        with database.write() as db:
            catalogue.delete(db, "birds")

    with pytest.raises(NotThere):
        publish(database, drafts(database, model_id, delete))
