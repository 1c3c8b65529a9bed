"""A worker's session: claim it, learn, publish. Whatever goes wrong, the session is given back or marked failed."""

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.errors import SessionCancelled
from core.progress import Progress
from engine.backbone_cache import BackboneCache, choose_device
from learners.base_job import BaseJob, Hopeless
from learners.refined_version import RefinedVersion
from learners.refining import Claim, Learned, Material, SessionConfig, SessionProgress, learn, read_material
from messaging.notifier import Notifier, NullNotifier
from store import sessions
from store.base_sessions import BASE
from store.database import Database
from store.errors import LeaseLost
from store.models import SessionId
from store.outages import frames, is_outage, summary
from store.settings import Settings
from tracing.spans import Stages, annotate, log_fields, span
from workers.heartbeat import Heartbeat
from workers.lease import Lease, Stopping

log = structlog.get_logger()

SECONDS_BETWEEN_REPORTS = 0.3
LONGEST_PAUSE = 1.0  # seconds without a beat, while a session is given back to a database that is away
DEFAULT = SessionConfig()
# The stages of a session, as traces call them.
SPANS = {"loading": "load", "looking": "embed", "learning": "train", "publishing": "publish"}

Learn = Callable[[Material, BackboneCache, SessionConfig, SessionProgress], Learned]


class SessionWorker:
    """Runs sessions one after another; backbones stay in memory in between."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        owner: str,
        *,
        config: SessionConfig = DEFAULT,
        learn: Learn = learn,
        heartbeat: Heartbeat | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self.database = database
        self.settings = settings
        self.owner = owner
        self.config = config
        self.learn = learn
        self.device = choose_device(settings.device)
        self.queues = settings.queues_of(self.device.type)
        self.backbones = BackboneCache(
            self.device, settings.engine, settings.prepared, settings.prepare_seconds, weights=settings.weights
        )
        self.stop = threading.Event()
        self.heartbeat = heartbeat or Heartbeat(settings.home)
        self.notifier = notifier or NullNotifier()

    def run_next(self, session_id: SessionId | None = None) -> bool:
        """Run one session, if one may be run; answers whether there was one."""
        claim = self._claim(session_id)
        if claim is None:
            return False
        about = {"session": claim.session_id, "attempt": claim.attempt}
        with (
            span("session", parent=claim.traceparent, **about),
            structlog.contextvars.bound_contextvars(**about, request_id=claim.request_id, **log_fields()),
        ):
            started = time.monotonic()
            log.info("session started")
            with Lease(self.database, claim, seconds=self.settings.lease_seconds) as lease:
                self._run(claim, lease)
            log.info("session over", seconds=round(time.monotonic() - started, 2))
        return True

    def _claim(self, session_id: SessionId | None) -> Claim | None:
        with self.database.write() as db:
            row = sessions.claim(
                db,
                self.owner,
                lease=self.settings.lease_seconds,
                attempts=self.settings.attempts,
                queues=self.queues,
                session_id=session_id,
            )
            if row is None:
                return None
            return Claim(row.id, row.attempt, row.model_id, row.request_id, row.traceparent, row.kind)

    def _run(self, claim: Claim, lease: Lease) -> None:
        try:
            self.learn_and_publish(claim, lease)
        except LeaseLost as error:
            log.warning("session lost", reason=str(error))
        except Stopping:
            with self.database.write() as db:
                sessions.release(db, claim.session_id, claim.attempt)
            log.info("session given back")
        except SessionCancelled:
            with self.database.write() as db:
                sessions.finish(db, claim.session_id, claim.attempt, "cancelled")
            log.info("session cancelled")
        except SQLAlchemyError as error:
            self._on_database_error(claim, error)
        except Hopeless as error:
            log.warning("session failed", error=str(error))
            self._failed(claim, str(error), attempts=1)
        except Exception as error:
            log.exception("session failed")
            self._failed(claim, f"{type(error).__name__}: {error}")

    def _on_database_error(self, claim: Claim, error: SQLAlchemyError) -> None:
        if is_outage(error):
            log.warning("the database does not answer; the session is given back", error=summary(error))
            self._give_back(claim)
        else:  # it will fail again, so it counts
            log.error("session failed", error=summary(error), stack=frames(error))
            self._failed(claim, summary(error))

    def _give_back(self, claim: Claim) -> None:
        """Without counting it as a failure of the session's, however long the database stays away.

        A database may answer this and still not what the session needs. So the session starts again after a pause that
        grows with its attempts, up to a lease.
        """
        pause = min(self.settings.lease_seconds, 2.0 ** min(claim.attempt, 30))
        while not self.stop.wait(min(self.settings.poll_seconds, LONGEST_PAUSE)):
            self.heartbeat.beat()
            try:
                with self.database.write() as db:
                    sessions.release(db, claim.session_id, claim.attempt, delay=pause)
            except LeaseLost as lost:
                log.warning("session lost", reason=str(lost))
            except SQLAlchemyError as error:
                if is_outage(error):
                    continue
                log.error("session not given back; it is free when its lease ends", error=summary(error))
            return

    def _failed(self, claim: Claim, error: str, attempts: int | None = None) -> None:
        attempts = attempts or self.settings.attempts
        try:
            with self.database.write() as db:
                sessions.record_failure(db, claim.session_id, claim.attempt, error, attempts=attempts)
        except LeaseLost as lost:
            log.warning("session lost", reason=str(lost))

    def learn_and_publish(self, claim: Claim, lease: Lease) -> None:
        with Stages() as stages:
            self._learn_and_publish(claim, lease, stages)

    def _learn_and_publish(self, claim: Claim, lease: Lease, stages: Stages) -> None:
        progress = _ProgressReporter(self.database, claim, lease, self.heartbeat, self.stop.is_set, stages)
        progress.stage("loading")
        if claim.kind == BASE:
            BaseJob(self.database, self.settings, self.backbones, claim, progress).run(self.notifier)
            return
        material = read_material(self.database, self.backbones, claim, self.settings)
        annotate(model=material.model.name)
        if not material.waiting:
            with self.database.write() as db:
                reason = "no class was waiting any more"
                sessions.finish(db, claim.session_id, claim.attempt, "succeeded", reason=reason)
            return
        learned = self.learn(material, self.backbones, self.config, progress)
        progress.stage("publishing")
        refined = RefinedVersion(self.database, self.settings, claim, material, learned, self.config, progress.check)
        refined.publish(self.notifier)


class _ProgressReporter:
    """Writes progress to the store, and raises when the session must stop."""

    def __init__(
        self,
        database: Database,
        claim: Claim,
        lease: Lease,
        heartbeat: Heartbeat,
        stopping: Callable[[], bool],
        stages: Stages,
    ) -> None:
        self.stages = stages
        self.database = database
        self.claim = claim
        self.lease = lease
        self.heartbeat = heartbeat
        self.stopping = stopping
        self._reported = 0.0

    def check(self) -> None:
        self.heartbeat.beat()
        self.lease.check()
        if self.stopping():
            raise Stopping

    def stage(self, name: str) -> None:
        self.check()
        self.stages.begin(SPANS.get(name, name))
        self._write({"stage": name})

    def looked(self, done: int, total: int) -> None:
        self.check()
        if self._is_time(last=done == total):
            self._write({"stage": "looking", "fraction": round(done / total, 4), "files": done, "of": total})

    def report(self, progress: Progress) -> None:
        self.check()
        if not self._is_time(last=progress.fraction >= 1):
            return
        self._write(
            {
                "stage": "learning",
                "fraction": round(progress.fraction, 4),
                "epoch": progress.epoch,
                "epochs": progress.epochs,
                "episode": progress.episode,
                "episodes": progress.episodes,
                "losses": {name: round(value, 6) for name, value in progress.losses.items()},
            }
        )

    def _is_time(self, *, last: bool) -> bool:
        """Not for every step: each is a transaction."""
        if not last and time.monotonic() - self._reported < SECONDS_BETWEEN_REPORTS:
            return False
        self._reported = time.monotonic()
        return True

    def _write(self, data: dict[str, Any]) -> None:
        with self.database.write() as db:
            cancelled = sessions.record_progress(db, self.claim.session_id, self.claim.attempt, data)
        if cancelled:  # the lease would hear of it too, but a session may be over before it is next renewed
            raise SessionCancelled(f"session {self.claim.session_id} was cancelled")
