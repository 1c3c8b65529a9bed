"""The version that comes of a base session, on top of whatever was taught while it ran.

Nothing is written before, not even the model: a base session that fails leaves no trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from sqlalchemy.orm import Session
from torch import Tensor

from core.bank import ClassId
from core.classifier import Certainty, NearestClassMean, leeway_of
from core.progress import Check
from core.views import CPU, features_of
from learners.base_training import BaseResult
from learners.calibrated_bank import CalibratedBank, MeasuredImages, calibrated, classifier_of
from learners.loading import base_blob
from learners.measuring import Columns, certainty_with, measured_rows
from learners.publishing import Draft, HeadMoved, publish
from learners.stored_images import AUGMENTED, embed_stored
from learners.taught_class import TaughtClass, learn_class
from store import bank_rows, catalogue, classes, versions
from store.database import Database
from store.errors import Conflict, LimitReached, NameTaken
from store.measurements import Measured
from store.models import Model, ModelId, SessionId, Version, VersionNumber
from store.settings import Settings
from store.versions import NewVersion

NAMES_SHOWN = 5  # in an error; the rest is a number


@dataclass(frozen=True)
class Target:
    """The model that a base session is for; one that does not exist yet has no id and no head."""

    model_id: ModelId | None = None
    backbone: str | None = None
    head: Version | None = None
    last_class: int = 0
    taught: tuple[ClassId, ...] = ()  # living classes that the head knows


@dataclass(frozen=True)
class PublishedBase:
    version: VersionNumber
    classes: int
    kept: int  # classes that were taught before
    accuracy: float | None  # percent of guard images


class Holder(Protocol):
    """Whoever runs the base session. A command holds nothing; a worker holds a session, which the version ends."""

    session_id: SessionId | None

    def check(self) -> None:
        """Raises if the session must stop."""

    def lock(self, db: Session) -> None:
        """Raises if the result must not be written; called with the model locked."""

    def finish(self, db: Session, published: PublishedBase) -> None:
        """In the transaction that writes the version."""


class NoHolder:
    session_id: SessionId | None = None

    def check(self) -> None: ...

    def lock(self, db: Session) -> None: ...

    def finish(self, db: Session, published: PublishedBase) -> None: ...


NO_HOLDER = NoHolder()


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A base session's result on a model as it stands."""

    target: Target
    bank: CalibratedBank
    accuracy: float | None
    measured: Sequence[Measured]


def find_target(db: Session, name: str, settings: Settings, new: Sequence[str]) -> Target:
    """The model, if a base session of classes with these names may be published on it; raises if not."""
    model = catalogue.find(db, name)
    if model is None:
        _require_within_limit(len(new), settings)
        return Target()
    head = versions.servable(db, model.id, model.head)
    if head.base != catalogue.UNTAUGHT:
        raise Conflict(
            f"model '{name}' stands on a base session already (version {head.base}); teach it more classes, "
            "or take another model"
        )
    _require_free(db, name, model.id, new)
    living = classes.living(db, model.id)
    known = tuple(ClassId(c) for c in bank_rows.class_ids(db, model.id, head.number) if c in living)
    _require_within_limit(len(known) + len(new), settings)
    return Target(model.id, model.backbone, head, model.last_class, known)


def publish_base(
    database: Database,
    settings: Settings,
    name: str,
    result: BaseResult,
    augmented: int = AUGMENTED,
    holder: Holder = NO_HOLDER,
) -> PublishedBase:
    """A version of kind base with the new classes, and with those that were taught before."""

    def prepare() -> Draft[PublishedBase]:
        with database.read() as db:
            target = find_target(db, name, settings, result.names)
        _require_backbone(target, name, result)
        relearned = _relearned(database, target, result, augmented, holder.check)
        prepared = _Prepared(target, *_bank(target, result, relearned))
        return Draft(partial(_lock, name, target, result, holder), partial(_write, name, result, prepared, holder))

    return publish(database, prepare)


def _require_within_limit(count: int, settings: Settings) -> None:
    if count > settings.max_classes:
        raise LimitReached(f"the model would have {count} classes, of {settings.max_classes} (PROTOQUAD_MAX_CLASSES)")


def _require_free(db: Session, model: str, model_id: ModelId, new: Sequence[str]) -> None:
    taken = classes.taken_names(db, model_id, new)
    if taken:
        some = ", ".join(f"'{name}'" for name in taken[:NAMES_SHOWN])
        more = f" and {len(taken) - NAMES_SHOWN} more" if len(taken) > NAMES_SHOWN else ""
        raise NameTaken(
            f"model '{model}' has classes of these names already: {some}{more}; rename the folders, "
            "or delete those classes first"
        )


def _require_backbone(target: Target, name: str, result: BaseResult) -> None:
    """Somebody may have made the model meanwhile."""
    if target.backbone not in (None, result.state.backbone):
        raise Conflict(
            f"model '{name}' was made on {target.backbone} while a base session of {result.state.backbone} ran; "
            "start again with another model"
        )


def _lock(name: str, target: Target, result: BaseResult, holder: Holder, db: Session) -> Model:
    """The model's row, locked or new."""
    if target.model_id is None:
        holder.lock(db)
        try:
            return catalogue.create(db, name, result.state.backbone, Certainty().temperature)
        except NameTaken as error:
            raise HeadMoved from error
    model = catalogue.locked(db, target.model_id)
    holder.lock(db)
    # Also the last class: one may have been taught, and the version before it activated again.
    if target.head is None or (model.head, model.last_class) != (target.head.number, target.last_class):
        raise HeadMoved
    return model


def _write(
    name: str, result: BaseResult, prepared: _Prepared, holder: Holder, db: Session, model: Model
) -> PublishedBase:
    bank, accuracy = prepared.bank, prepared.accuracy
    _require_free(db, name, model.id, result.names)  # a class may have been renamed, which moves no head
    number = VersionNumber(model.last_version + 1)
    guard = _guard_by_class(result)
    for place, (own_name, shots) in enumerate(zip(result.names, result.state.bank.shots.tolist(), strict=True)):
        row = classes.add(db, model, own_name, shots=shots, since=number, status="learned")
        classes.add_guard(db, model.id, row.id, guard.get(place, []))
    new = NewVersion(
        "base",
        prepared.target.head or versions.get(db, model.id, catalogue.UNTAUGHT),
        classes=len(bank.rows),
        temperature=bank.temperature,
        threshold=bank.unknown.threshold,
        weights=base_blob(result.state),
        details=_details(bank, accuracy, result),
        prototypes=bank.rows,
        measurements=_with_images(db, model.id, prepared.measured),
        session_id=holder.session_id,
    )
    version = versions.add(db, model, new)
    published = PublishedBase(version.number, len(result.names), len(bank.rows) - len(result.names), accuracy)
    holder.finish(db, published)
    return published


def _with_images(db: Session, model_id: ModelId, measured: Sequence[Measured]) -> list[Measured]:
    """The guard images of a class were stored in the order in which they were measured."""
    stored = {c: iter(classes.guard_keys(db, model_id, c)) for c in {one.class_id for one in measured}}
    return [replace(one, image=-next(stored[one.class_id])) for one in measured]


def _details(bank: CalibratedBank, accuracy: float | None, result: BaseResult) -> dict[str, Any]:
    return {
        "accuracy": {"old": accuracy, "new": None},
        "unknown": bank.unknown.details(),
        "pictures": result.images,
        "skipped": len(result.skipped),
    }


def _guard_by_class(result: BaseResult) -> dict[int, list[bytes]]:
    images: dict[int, list[bytes]] = {}
    if result.guard is not None:
        for place, data in zip(result.guard.places, result.guard.data, strict=True):
            images.setdefault(place, []).append(data)
    return images


def _bank(
    target: Target, result: BaseResult, relearned: dict[ClassId, TaughtClass]
) -> tuple[CalibratedBank, float | None, list[Measured]]:
    """All classes of the version, the accuracy on guard images in percent, and what was measured of each."""
    class_ids = _new_ids(target, result)
    bank = replace(result.state.bank, class_ids=class_ids)
    classifier = classifier_of(result.state.space, bank, relearned)
    distances, own = _guard_distances(classifier, class_ids, result)
    accuracy = round(100 * float((distances.argmin(1) == own).float().mean()), 2) if len(own) else None
    held_out = _held_out(class_ids, distances, result)
    measured = [MeasuredImages(classifier.class_ids, distances, own)]
    found = calibrated(result.state.space, bank, relearned, held_out, measured, restarted=class_ids)
    ids = [int(class_id) for class_id in classifier.class_ids]
    columns = Columns(ids, leeway_of(result.state.space, classifier.class_ids, held_out))
    certainty = certainty_with(found.temperature, found.unknown.threshold)
    return found, accuracy, measured_rows(distances, own, columns, [0] * len(own), certainty)


def _new_ids(target: Target, result: BaseResult) -> tuple[ClassId, ...]:
    return tuple(ClassId(target.last_class + 1 + place) for place in range(len(result.names)))


def _relearned(
    database: Database, target: Target, result: BaseResult, augmented: int, check: Check
) -> dict[ClassId, TaughtClass]:
    """Classes that the model was taught before, their stored shots embedded by the new network."""
    if target.model_id is None or not target.taught:
        return {}
    with database.read() as db:
        images = classes.shots_of(db, target.model_id, target.taught)
    trunk = result.compiled.trunk(result.state.weights)
    views = embed_stored(result.backbone.framing, trunk, images, augmented, check)
    if views is None or views.class_ids != target.taught:
        raise Conflict("classes of this model have no stored images that the new network could learn them from")
    features = features_of(result.tail, views, CPU, check=check)
    bank = replace(result.state.bank, class_ids=_new_ids(target, result))
    known = NearestClassMean(result.state.space, bank, Certainty())
    return {c: learn_class(known, features[views.labels == c], c) for c in views.class_ids}


def _guard_distances(
    classifier: NearestClassMean, class_ids: Sequence[ClassId], result: BaseResult
) -> tuple[Tensor, Tensor]:
    """Guard images to every class (g, K), and the row of the true one (g,)."""
    if result.guard is None:
        return torch.zeros(0, len(classifier)), torch.zeros(0, dtype=torch.long)
    own = classifier.rows(class_ids[place] for place in result.guard.places)
    return classifier.distances(result.guard.features), torch.tensor(own)


def _held_out(class_ids: Sequence[ClassId], distances: Tensor, result: BaseResult) -> dict[ClassId, Tensor]:
    """How far each class's guard images are from the class nearest to them."""
    if result.guard is None:
        return {}
    apart = distances.amin(1)  # (g,)
    places = torch.tensor(result.guard.places)
    return {class_ids[place]: apart[places == place] for place in places.unique().tolist()}
