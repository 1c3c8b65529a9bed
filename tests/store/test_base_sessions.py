"""Base sessions wait beside the others, one of a model, and their zip is there exactly as long as they are not over."""

import io

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store import base_sessions, catalogue, sessions, zip_parts
from store.errors import Conflict
from store.models import Model, SessionRow, ZipPart

ZIP = bytes(range(256)) * 1000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_parts, "PART_BYTES", 100_000)


def enqueue(db: Session, model: Model, data: bytes | None = ZIP) -> SessionRow:
    file = None if data is None else io.BytesIO(data)
    return base_sessions.enqueue(db, model.id, {"epochs": 3}, file, queue="cpu", request_id="request 1")


def claimed(db: Session, attempts: int = 3, lease: float = 600.0) -> SessionRow:
    row = sessions.claim(db, "worker", lease=lease, attempts=attempts)
    assert row is not None
    return row


def parts(db: Session) -> int:
    return db.execute(select(func.count()).select_from(ZipPart)).scalar_one()


def test_a_base_session_is_ready_at_once_with_its_zip(db: Session, model: Model) -> None:
    """In pieces, which together are the zip."""
    row = enqueue(db, model)

    taken = claimed(db)

    assert (taken.id, taken.kind, taken.task, taken.request_id) == (
        row.id,
        "base",
        {"epochs": 3, "parts": 3},
        "request 1",
    )
    assert b"".join(zip_parts.read(db, row.id, number) or b"" for number in range(3)) == ZIP
    assert zip_parts.read(db, row.id, 3) is None


def test_a_model_has_one_that_is_not_over(db: Session, model: Model) -> None:
    """Whether it waits or runs; the error names it and what to do. Another model may have one too."""
    row = enqueue(db, model)
    enqueue(db, catalogue.create(db, "cars", "resnet18", 1.0))

    for status in ("queued", "running"):
        with pytest.raises(Conflict, match=f"session {row.id} is {status}; wait until it is over, or cancel it"):
            enqueue(db, model)
        claimed(db)


def test_the_database_itself_lets_only_one_wait(db: Session, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two replicas have both looked and found none."""
    enqueue(db, model)
    monkeypatch.setattr(base_sessions, "require_none", lambda *_: None)

    with pytest.raises(Conflict, match="was started at the same moment"):
        enqueue(db, model)

    assert parts(db) == 3


def test_teaching_waits_beside_it_and_runs_after_it(db: Session, model: Model) -> None:
    """It does not join a base session, and one session of a model runs at a time."""
    base = enqueue(db, model)

    taught = sessions.enqueue(db, model, delay=0, patience=0)

    assert (taught.kind, taught.id != base.id) == ("incremental", True)
    first = claimed(db)
    assert first.id == base.id
    assert sessions.claim(db, "other", lease=600, attempts=3) is None
    sessions.finish(db, first.id, first.attempt, "succeeded", version=1)
    assert claimed(db).id == taught.id


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled", "cancelled while it waits", "lost", "deleted"])
def test_its_zip_is_gone_when_it_is_over(db: Session, model: Model, outcome: str) -> None:
    """However it ended, and with its model."""
    row = enqueue(db, model)
    if outcome == "cancelled while it waits":
        sessions.cancel(db, model.id, row.id)
    elif outcome == "deleted":
        catalogue.delete(db, model.name)
    elif outcome == "lost":
        claimed(db, lease=-1.0)
        assert sessions.claim(db, "other", lease=600, attempts=1) is None
    else:
        taken = claimed(db)
        if outcome == "failed":
            assert sessions.record_failure(db, taken.id, taken.attempt, "no", attempts=1)
        else:
            sessions.finish(db, taken.id, taken.attempt, outcome)

    assert parts(db) == 0


def test_its_zip_stays_for_the_next_attempt(db: Session, model: Model) -> None:
    """Of a worker that failed, stopped or was lost."""
    enqueue(db, model)
    first = claimed(db)
    assert not sessions.record_failure(db, first.id, first.attempt, "no", attempts=3)
    sessions.release(db, first.id, claimed(db).attempt)
    claimed(db, lease=-1.0)

    assert claimed(db).attempt == 4
    assert parts(db) == 3


def test_a_session_of_a_folder_has_no_zip(db: Session, model: Model) -> None:
    """Its task says where the images are."""
    row = base_sessions.enqueue(db, model.id, {"folder": "/data"}, None, queue="gpu", request_id=None)

    assert (row.task, row.queue, parts(db)) == ({"folder": "/data"}, "gpu", 0)
