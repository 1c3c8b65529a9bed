"""What an incremental session starts from, and what it learns from that. Writes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from core.backbones import Backbone
from core.bank import ClassId
from core.guard import Judge, Measured, Verdict, judge
from core.incremental_session import IncrementalConfig
from core.progress import Progress
from core.refinement import Refinement, refine
from core.state import LearnerState, weights_of
from core.trials import SessionImages
from engine.backbone_cache import BackboneCache
from engine.compiled_module import CompiledModule
from learners.loading import VersionWeights, learner_of_version, untaught, weights_of_version
from learners.stored_images import AUGMENTED, embed_stored
from store import catalogue, classes, versions
from store.classes import StoredImage
from store.database import Database
from store.errors import LeaseLost
from store.models import Model, ModelId, SessionId, Version
from store.sessions import INCREMENTAL
from store.settings import Settings
from tracing.spans import span


@dataclass(frozen=True)
class Claim:
    """A session that belongs to this attempt, as long as no other worker has taken it over."""

    session_id: SessionId
    attempt: int
    model_id: ModelId
    request_id: str | None
    traceparent: str | None = None
    kind: str = INCREMENTAL


@dataclass(frozen=True, eq=False)
class Material:
    """All that a session starts from."""

    model: Model
    head: Version
    weights: VersionWeights
    parent: LearnerState  # without the classes that wait
    revisions: Mapping[int, int]  # of every living class
    waiting: Sequence[ClassId]
    shots: Sequence[StoredImage]
    replay: Sequence[StoredImage]  # shots of old classes to learn from again
    guard: Sequence[StoredImage]


@dataclass(frozen=True, eq=False)
class Learned:
    """What came of it."""

    refinement: Refinement
    backbone: Backbone  # as the session found it
    trunk: CompiledModule
    images: SessionImages


def read_material(database: Database, backbones: BackboneCache, claim: Claim, settings: Settings) -> Material:
    """Raises LeaseLost if the model was deleted."""
    with database.read() as db:
        model = catalogue.find_by_id(db, claim.model_id)
        if model is None:
            raise LeaseLost("the model was deleted")
        head = versions.servable(db, model.id, model.head)
        backbone = backbones.pretrained(model.backbone)
        own = untaught(backbone.name, weights_of(backbone, "tail"), backbone.dim)
        weights = weights_of_version(db, own, head)
        state = learner_of_version(db, backbone, head, weights)
        waiting = [ClassId(row.id) for row in classes.waiting(db, model.id) if row.id in state.bank]
        known = state.bank.without(waiting)
        replayed: list[int] = []
        if settings.replay == "on":
            replayed = classes.wholly_stored(db, model.id, known.class_ids, settings.replay_shots)
        guarded = [class_id for class_id in known.class_ids if class_id not in set(replayed)]
        # What is replayed is measured anew; of all others, the scatter is that of the base session.
        scatter = weights.base.scatter if replayed else state.scatter
        return Material(
            model,
            head,
            weights,
            replace(state, bank=known, scatter=scatter),
            classes.living(db, model.id),
            waiting,
            classes.shots_of(db, model.id, waiting),
            classes.shots_of(db, model.id, replayed),
            classes.guard_set(db, model.id, guarded, settings.guard_images),
        )


@dataclass(frozen=True)
class SessionConfig:
    """How sessions learn."""

    incremental: IncrementalConfig = field(default_factory=IncrementalConfig)
    augmented: int = AUGMENTED  # views of a shot beside its centre view
    judge: Judge = judge


class SessionProgress(Protocol):
    """Whom a session reports to. Each method may raise, to stop the session."""

    def stage(self, name: str) -> None: ...

    def check(self) -> None: ...

    def report(self, progress: Progress) -> None: ...


def learn(
    material: Material,
    backbones: BackboneCache,
    config: SessionConfig,
    progress: SessionProgress,
) -> Learned:
    """Embed the images with the compiled trunk, then train and measure on their activations."""
    name = material.model.backbone
    backbone = backbones.trained(name, material.weights.weights)
    trunk = backbones.compiled(name).trunk(material.weights.weights)
    progress.stage("looking")
    embed = partial(embed_stored, backbone.framing, trunk, check=progress.check)
    shots = embed(material.shots, config.augmented)
    if shots is None:
        raise LookupError(f"classes {material.waiting} wait for a session and have no shots")
    images = SessionImages(shots, embed(material.replay, config.augmented), embed(material.guard, 0))
    progress.stage("learning")
    refinement = refine(
        backbone,
        material.parent,
        images,
        replace(config.incremental, seed=material.head.number),
        start=backbones.trained(name, material.weights.base.weights) if images.replay is not None else None,
        judge=partial(_judged, config.judge),
        device=backbones.device,
        report=progress.report,
    )
    return Learned(refinement, backbone, trunk, images)


def _judged(judge: Judge, before: Measured, after: Measured) -> Verdict:
    with span("gate") as own:
        verdict = judge(before, after)
        if own is not None:
            own.set_attribute("protoquad.verdict", "promoted" if verdict.promoted else "rejected")
        return verdict
