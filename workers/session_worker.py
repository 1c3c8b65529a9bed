"""One incremental session: claim it, learn, publish.

Learns from what the store holds at the time of the claim. What changed meanwhile is caught up with when the result is
published: classes taught in between are seen again by the new network, deleted ones stay away, and if somebody has
activated another version the result is set aside.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core.bank import ClassId
from core.errors import SessionCancelled
from core.incremental_session import IncrementalConfig
from core.progress import Progress
from core.refinement import refine
from core.state import weights_of, with_weights
from engine.backbone_cache import BackboneCache, chosen_device
from learners.loading import learner, trained
from learners.refining import Learnt, Material, Publisher
from learners.stored_images import AUGMENTED, seen
from messaging.notifier import Notifier, NullNotifier
from store import catalogue, classes, sessions, versions
from store.database import Database
from store.errors import LeaseLost
from store.models import SessionId
from store.outages import frames, is_outage, summary
from store.settings import Settings
from workers.heartbeat import Heartbeat
from workers.lease import Claim, Lease, Stopping

log = structlog.get_logger()

SECONDS_BETWEEN_REPORTS = 0.3
SECONDS_BETWEEN_TRIES = 1.0  # to give a session back to a database that is away


class SessionWorker:
    """Runs sessions one after another; networks stay warm in between."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        owner: str,
        *,
        stop: threading.Event | None = None,
        pulse: Heartbeat | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self.database = database
        self.settings = settings
        self.owner = owner
        self.device = chosen_device(settings.device)
        self.queues = settings.queues_of(self.device.type)
        self.networks = BackboneCache(self.device, settings.engine, settings.prepared, settings.prepare_seconds)
        self.stop = stop or threading.Event()
        self.pulse = pulse or Heartbeat(settings.home)
        self.notifier = notifier or NullNotifier()

    def run_next(self, session_id: SessionId | None = None) -> bool:
        """Run one session, if one may be run; answers whether there was one."""
        claim = self._claim(session_id)
        if claim is None:
            return False
        with structlog.contextvars.bound_contextvars(
            session=claim.session_id, attempt=claim.attempt, request_id=claim.request_id
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
            return Claim(row.id, row.attempt, row.model_id, row.request_id) if row else None

    def _run(self, claim: Claim, lease: Lease) -> None:
        try:
            self._learn_and_publish(claim, lease)
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
        while not self.stop.wait(SECONDS_BETWEEN_TRIES):
            self.pulse.beat()
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

    def _failed(self, claim: Claim, error: str) -> None:
        try:
            with self.database.write() as db:
                sessions.record_failure(db, claim.session_id, claim.attempt, error, attempts=self.settings.attempts)
        except LeaseLost as lost:
            log.warning("session lost", reason=str(lost))

    def _learn_and_publish(self, claim: Claim, lease: Lease) -> None:
        teller = _Teller(self.database, claim, lease, self.pulse, self.stop.is_set)
        teller.stage("loading")
        material = self._material(claim)
        if not material.waiting:
            with self.database.write() as db:
                reason = "no class was waiting any more"
                sessions.finish(db, claim.session_id, claim.attempt, "succeeded", reason=reason)
            return
        learnt = self._learn(material, teller)
        teller.stage("publishing")
        Publisher(self.database, self.settings, claim, material, learnt, self.notifier).publish()

    def _material(self, claim: Claim) -> Material:
        with self.database.read() as db:
            model = catalogue.find_by_id(db, claim.model_id)
            if model is None:
                raise LeaseLost("the model was deleted")
            head = versions.servable(db, model.id, model.head)
            backbone = self.networks.pretrained(model.backbone)
            network = trained(db, weights_of(backbone, "tail"), head)
            state = learner(db, backbone, head, network)
            waiting = [ClassId(row.id) for row in classes.waiting(db, model.id) if row.id in state.bank]
            parent = replace(state, bank=state.bank.without(waiting))
            return Material(
                model,
                head,
                network,
                parent,
                classes.living(db, model.id),
                waiting,
                classes.shots_of(db, model.id, waiting),
                classes.guard_set(db, model.id, parent.bank.class_ids, self.settings.guard_images),
            )

    def _learn(self, material: Material, teller: "_Teller") -> Learnt:
        backbone = self.networks.trained(material.model.backbone, material.network)
        trunk = self.networks.kit(backbone.name).trunk(material.network.weights)
        teller.stage("looking")
        shots = seen(backbone.framing, trunk, material.shots, AUGMENTED, check=teller.check)
        guard = seen(backbone.framing, trunk, material.guard, 0, check=teller.check)
        if shots is None:
            raise LookupError(f"classes {material.waiting} wait for a session and have no shots")
        teller.stage("learning")
        config = IncrementalConfig(seed=material.head.number)
        refinement = refine(
            backbone, material.parent, shots, config, guard=guard, device=self.device, report=teller.progress
        )
        promoted = refinement.candidate is not None and refinement.verdict.promoted
        carrier = with_weights(backbone, refinement.state.weights) if promoted else backbone
        return Learnt(refinement, carrier, trunk, guard, shots)


class _Teller:
    """Reports progress to the store, and raises where the session must stop."""

    def __init__(
        self, database: Database, claim: Claim, lease: Lease, pulse: Heartbeat, stopping: Callable[[], bool]
    ) -> None:
        self.database = database
        self.claim = claim
        self.lease = lease
        self.pulse = pulse
        self.stopping = stopping
        self._told = 0.0

    def check(self) -> None:
        self.pulse.beat()
        self.lease.check()
        if self.stopping():
            raise Stopping

    def stage(self, name: str) -> None:
        self.check()
        self._write({"stage": name})

    def progress(self, progress: Progress) -> None:
        self.check()
        last = progress.fraction >= 1
        if not last and time.monotonic() - self._told < SECONDS_BETWEEN_REPORTS:
            return
        self._told = time.monotonic()
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

    def _write(self, data: dict[str, Any]) -> None:
        with self.database.write() as db:
            cancelled = sessions.record_progress(db, self.claim.session_id, self.claim.attempt, data)
        if cancelled:  # the lease would hear of it too, but a session may be over before it is next renewed
            raise SessionCancelled(f"session {self.claim.session_id} was cancelled")
