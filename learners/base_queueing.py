"""A base session that somebody asks for over HTTP: checked, stored with its images, and left to a worker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from learners.base_folder import ClassFolder
from learners.base_publishing import find_target
from learners.publishing import Notifier
from learners.taught_answer import Idempotency, Outcome, recall, remember, session_answer
from store import base_sessions, catalogue
from store.database import Database
from store.settings import Settings


@dataclass(frozen=True, eq=False)
class BaseOrder:
    """What to learn from: a folder that the task names, or a zip."""

    folders: Sequence[ClassFolder]
    task: dict[str, Any]
    zip_file: IO[bytes] | None = None

    @property
    def names(self) -> list[str]:
        return [folder.name for folder in self.folders]


class BaseQueue:
    """All methods wait for the database: call them in a thread."""

    def __init__(self, database: Database, settings: Settings, notifier: Notifier) -> None:
        self.database = database
        self.settings = settings
        self.notifier = notifier

    def recall(self, model: str, key: Idempotency) -> Outcome | None:
        """What the same request was answered before."""
        with self.database.read() as db:
            return recall(db, catalogue.get(db, model).id, key)

    def require_possible(self, model: str, names: Sequence[str] = ()) -> None:
        """Raises if a base session of classes with these names could not be published on the model."""
        with self.database.read() as db:
            base_sessions.require_none(db, catalogue.get(db, model).id)
            find_target(db, model, self.settings, names)

    def enqueue(self, model: str, order: BaseOrder, key: Idempotency | None, request_id: str) -> Outcome:
        """The session and its zip in one transaction: there is never one without the other."""
        queue = self.settings.session_queue
        with self.database.write() as db:
            model_id = catalogue.get(db, model).id
            session = base_sessions.enqueue(
                db, model_id, order.task, order.zip_file, queue=queue, request_id=request_id
            )
            # Locked last, because storing a zip may take seconds, in which others want to teach.
            row = catalogue.locked(db, model_id)
            find_target(db, row.name, self.settings, order.names)
            outcome = Outcome(session_answer(session), session.id)
            remember(db, model_id, key, outcome)
        self.notifier.session_queued(session.id, queue, 0)
        return outcome
