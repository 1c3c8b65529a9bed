"""The one way in which a model changes: prepare on the head as it stands, then write if the head is still that one.

Preparing may take long and holds no lock. Whoever finds that the head has moved prepares again. So nobody waits for a
session, and nothing that was taught meanwhile is lost.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sqlalchemy.orm import Session

from engine.single_flight import Busy
from store import catalogue
from store.database import Database
from store.models import Model, ModelId
from tracing.spans import span

ATTEMPTS = 50  # each prepares anew on the head as it is then

Result = TypeVar("Result")
Lock = Callable[[Session], Model]  # the model's row, locked; raises HeadMoved


class Notifier(Protocol):
    """Whom a change is announced to, once it is stored."""

    def model_changed(self, model: str) -> None: ...

    def session_queued(self, session_id: int, queue: str, seconds: float) -> None: ...


class HeadMoved(Exception):
    """The model is not what the change was prepared for."""


@dataclass(frozen=True)
class Draft(Generic[Result]):
    """A change that was prepared for a model as it stands."""

    lock: Lock
    write: Callable[[Session, Model], Result]  # in the transaction that holds the lock


def on_head(model_id: ModelId, head: int) -> Lock:
    """For a change that was prepared on this version."""

    def lock(db: Session) -> Model:
        model = catalogue.locked(db, model_id)
        if model.head != head:
            raise HeadMoved
        return model

    return lock


def publish(
    database: Database,
    prepare: Callable[[], Draft[Result]],
    catch_up: Callable[[], object] = lambda: None,
    attempts: int = ATTEMPTS,
) -> Result:
    """Prepare and write, until the head stands still. `catch_up` is called before preparing again."""
    for _ in range(attempts):
        draft = prepare()
        with suppress(HeadMoved), span("transaction"), database.write() as db:
            return draft.write(db, draft.lock(db))
        del draft  # it may hold a whole bank
        catch_up()
    raise Busy("other processes change this model all the time", retry_seconds=1)
