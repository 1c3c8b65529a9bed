"""A request that is sent twice is done once."""

from datetime import timedelta

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from store import catalogue, idempotency, sessions
from store.database import now
from store.models import IdempotencyKey, Model


def remember(db: Session, model: Model, key: str = "key", fingerprint: str = "print", **answer: object) -> None:
    idempotency.remember(db, model.id, key, fingerprint, answer=answer, session_id=None)


def age(db: Session, by: timedelta) -> None:
    db.execute(update(IdempotencyKey).values(created_at=now(db) - by))
    db.expire_all()


def test_an_unknown_key_recalls_nothing(db: Session, model: Model) -> None:
    """The request is new."""
    assert idempotency.recall(db, model.id, "key", "print") is None


def test_the_same_request_gets_the_same_answer(db: Session, model: Model) -> None:
    """With its status and the session it led to."""
    session = sessions.enqueue(db, model, delay=0, patience=0)
    idempotency.remember(db, model.id, "key", "print", answer={"class": {"id": 3}, "ü": None}, session_id=session.id)
    db.expire_all()

    found = idempotency.recall(db, model.id, "key", "print")
    assert found is not None
    assert (found.status, found.answer, found.session_id) == (202, {"class": {"id": 3}, "ü": None}, session.id)


def test_a_key_cannot_be_used_for_another_request(db: Session, model: Model) -> None:
    """Answering with what was never asked would be worse than refusing."""
    remember(db, model)

    with pytest.raises(idempotency.KeyReused, match="'key'"):
        idempotency.recall(db, model.id, "key", "another print")


def test_keys_belong_to_their_model(db: Session, model: Model) -> None:
    """Two callers may have chosen the same."""
    other = catalogue.create(db, "cars", "resnet18", 1.0)
    remember(db, model, of="birds")

    assert idempotency.recall(db, other.id, "key", "another print") is None
    remember(db, other, fingerprint="another print", of="cars")
    found = idempotency.recall(db, model.id, "key", "print")
    assert found is not None
    assert found.answer == {"of": "birds"}


def test_an_answer_is_forgotten_after_a_day(db: Session, model: Model) -> None:
    """Until then it is known; afterwards the key may be used for anything, also within the transaction that asked."""
    remember(db, model, number=1)
    age(db, idempotency.REMEMBERED - timedelta(minutes=1))
    assert idempotency.recall(db, model.id, "key", "print") is not None

    age(db, idempotency.REMEMBERED + timedelta(seconds=1))
    assert idempotency.recall(db, model.id, "key", "another print") is None
    remember(db, model, fingerprint="another print", number=2)

    found = idempotency.recall(db, model.id, "key", "another print")
    assert found is not None
    assert found.answer == {"number": 2}


def test_remembering_one_clears_away_the_expired(db: Session, model: Model) -> None:
    """The table does not grow for ever."""
    for number in range(3):
        remember(db, model, f"old {number}")
    age(db, idempotency.REMEMBERED + timedelta(seconds=1))
    remember(db, model, "new")

    assert db.execute(select(func.count()).select_from(IdempotencyKey)).scalar_one() == 1


def test_an_answer_outlives_its_session(db: Session, model: Model) -> None:
    """Only the link is lost."""
    session = sessions.enqueue(db, model, delay=0, patience=0)
    idempotency.remember(db, model.id, "key", "print", answer={}, session_id=session.id)
    db.delete(session)
    db.flush()
    db.expire_all()

    found = idempotency.recall(db, model.id, "key", "print")
    assert found is not None
    assert found.session_id is None
