"""A worker's base session: the folders that its task names, learned and published while the session is held."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

from sqlalchemy.orm import Session

from core.errors import SessionCancelled
from core.progress import Report
from engine.backbone_cache import BackboneCache
from learners.allowed_folders import read_allowed
from learners.base_folder import ClassFolder, FolderError
from learners.base_images import Advance, Skipped
from learners.base_publishing import PublishedBase, find_target, publish_base
from learners.base_run import learn_base
from learners.base_training import BaseResult
from learners.base_zip import ZipLimits, opened_zip
from learners.publishing import Notifier
from learners.refining import Claim, SessionProgress
from store import catalogue, sessions, zip_parts
from store.database import OWNER_ONLY_FOLDER, Database
from store.errors import Conflict, LeaseLost, LimitReached, NameTaken, NotThere
from store.models import Model, SessionId
from store.settings import Settings

SKIPPED_SHOWN = 5  # files that the session's reason names; the rest is a number


class Hopeless(Exception):
    """Another attempt would end in the same way."""


class BaseProgress(SessionProgress, Protocol):
    def looked(self, done: int, total: int) -> None:
        """This many files were read."""


class BaseJob:
    """One claimed base session."""

    def __init__(
        self, database: Database, settings: Settings, backbones: BackboneCache, claim: Claim, progress: BaseProgress
    ) -> None:
        self.database = database
        self.settings = settings
        self.backbones = backbones
        self.claim = claim
        self.progress = progress

    def run(self, notifier: Notifier) -> PublishedBase:
        """Raises Hopeless with a sentence for the caller, LeaseLost if the session is not ours any more."""
        try:
            model, task = self._read_task()
            with self._folders(task) as folders:
                published = self._learn(model.name, model.backbone, folders, task.get("epochs"))
        except LeaseLost:
            raise
        except NotThere as error:
            raise LeaseLost(str(error)) from error
        except (FolderError, Conflict, NameTaken, LimitReached) as error:
            raise Hopeless(str(error)) from error
        notifier.model_changed(model.name)
        return published

    def _read_task(self) -> tuple[Model, dict[str, Any]]:
        with self.database.read() as db:
            model = catalogue.find_by_id(db, self.claim.model_id)
            if model is None:
                raise LeaseLost("the model was deleted")
            return model, sessions.get(db, model.id, self.claim.session_id).task or {}

    @contextmanager
    def _folders(self, task: dict[str, Any]) -> Iterator[Sequence[ClassFolder]]:
        room = self.settings.room
        room.mkdir(OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
        if "folder" in task:
            yield read_allowed(task["folder"], self.settings)
            return
        with TemporaryFile(dir=room) as file:  # without a name: however the worker ends, nothing of it is left
            self._fetch(file, task["parts"])
            with opened_zip(file, zip_limits(self.settings)) as folders:
                yield folders

    def _fetch(self, file: IO[bytes], parts: int) -> None:
        for number in range(parts):
            self.progress.check()
            with self.database.read() as db:
                data = zip_parts.read(db, self.claim.session_id, number)
            if data is None:
                raise LeaseLost(f"session {self.claim.session_id} is over; its zip was deleted")
            file.write(data)

    def _learn(self, name: str, backbone: str, folders: Sequence[ClassFolder], epochs: int | None) -> PublishedBase:
        with self.database.read() as db:  # before an hour is spent
            find_target(db, name, self.settings, [folder.name for folder in folders])
        steps = _Steps(self.progress)
        result = learn_base(folders, self.backbones, backbone, epochs, self.settings, steps)
        self.progress.stage("publishing")
        holder = _Held(self.claim, result, self.progress.check)
        return publish_base(self.database, self.settings, name, result, holder=holder)


def zip_limits(settings: Settings) -> ZipLimits:
    return ZipLimits(settings.max_zip_bytes, settings.max_request_bytes)


class _Steps:
    """Implements `learners.base_run.Steps` with the stages of a session."""

    def __init__(self, progress: BaseProgress) -> None:
        self.progress = progress

    def check(self) -> None:
        self.progress.check()

    @contextmanager
    def reading(self, files: int, classes: int) -> Iterator[Advance]:  # noqa: ARG002
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.progress.looked(done, files)

        self.progress.stage("looking")
        yield advance

    @contextmanager
    def training(self, images: int) -> Iterator[Report]:  # noqa: ARG002
        self.progress.stage("learning")
        yield self.progress.report


class _Held:
    """Implements `learners.base_publishing.Holder` with a claimed session."""

    def __init__(self, claim: Claim, result: BaseResult, check: Callable[[], None]) -> None:
        self.claim = claim
        self.result = result
        self.check = check
        self.session_id: SessionId | None = claim.session_id

    def lock(self, db: Session) -> None:
        """Also keeps a base session from making a model again that was deleted: its session is gone with it."""
        self.check()
        if sessions.fenced(db, self.claim.session_id, self.claim.attempt).cancel_requested:
            raise SessionCancelled(f"session {self.claim.session_id} was cancelled")

    def finish(self, db: Session, published: PublishedBase) -> None:
        outcome: dict[str, Any] = {"reason": summary(published, self.result), "version": published.version}
        sessions.finish(db, self.claim.session_id, self.claim.attempt, "succeeded", **outcome)


def summary(published: PublishedBase, result: BaseResult) -> str:
    """What came of it, in one line."""
    parts = [f"{_counted(published.classes, 'class', 'classes')} from {_counted(result.images, 'image', 'images')}"]
    if published.accuracy is not None and result.guard is not None:
        parts.append(f"{published.accuracy:.1f} % of {len(result.guard.data)} held-out images right")
    if published.kept:
        parts.append(f"kept {_counted(published.kept, 'class', 'classes')} taught before")
    if result.skipped:
        parts.append(_skipped(result.skipped))
    return "; ".join(parts)


def _skipped(skipped: Sequence[Skipped]) -> str:
    named = ", ".join(f"{_place(one)} ({one.reason.partition(';')[0]})" for one in skipped[:SKIPPED_SHOWN])
    more = f" and {len(skipped) - SKIPPED_SHOWN} more" if len(skipped) > SKIPPED_SHOWN else ""
    return f"skipped {_counted(len(skipped), 'file', 'files')}: {named}{more}"


def _place(one: Skipped) -> str:
    """Class folder and file, in characters that a database can store."""
    return "/".join(Path(str(one.file)).parts[-2:]).encode("utf-8", "replace").decode()


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
