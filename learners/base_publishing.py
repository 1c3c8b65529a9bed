"""Writes a base session's result in one transaction, on top of whatever was taught while it ran.

As with an incremental session, the result is prepared for the head as it stands and written only if the head is still
that one. Until then nothing is written, not even the model: a base session that fails leaves no trace.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from sqlalchemy.orm import Session
from torch import Tensor

from core.bank import ClassId, PrototypeBank
from core.classifier import Certainty, Learned, NearestClassMean, calibrate
from core.views import features_of
from learners.base_training import Learnt
from learners.blobs import to_blob
from learners.loading import base_blob
from learners.stored_images import AUGMENTED, seen
from learners.taught_class import Taught, taught
from learners.unknown_detection import UnknownDetection, detect_unknown, nearest_other
from store import bank_rows, catalogue, classes, versions
from store.bank_rows import PrototypeRow
from store.database import Database
from store.errors import Conflict, LimitReached, NameTaken
from store.models import Model, ModelId, Version, VersionNumber
from store.settings import Settings

ATTEMPTS = 20  # each costs another look at what was taught in between
TOLD = 5  # names in an error; the rest is a number
CPU = torch.device("cpu")


class _Moved(Exception):
    """The model is not what was prepared for."""


@dataclass(frozen=True)
class Situation:
    """A model as a base session finds it; one that does not exist yet has no row and no head."""

    model_id: ModelId | None = None
    backbone: str | None = None
    head: Version | None = None
    last_class: int = 0
    taught: tuple[ClassId, ...] = ()  # living classes that the head knows


@dataclass(frozen=True)
class Published:
    """What a base session has brought."""

    version: VersionNumber
    classes: int
    kept: int  # classes that were taught before
    accuracy: float | None  # percent of guard pictures


@dataclass(frozen=True, eq=False)
class _Prepared:
    """All that is written, but for the guard pictures."""

    class_ids: tuple[ClassId, ...]
    rows: tuple[PrototypeRow, ...]
    temperature: float
    open_world: UnknownDetection
    accuracy: float | None


def situation(db: Session, name: str, settings: Settings, new: Sequence[str]) -> Situation:
    """The model, if a base session of classes with these names may be written on it; raises if not."""
    model = catalogue.find(db, name)
    if model is None:
        _require_within_limit(len(new), settings)
        return Situation()
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
    return Situation(model.id, model.backbone, head, model.last_class, known)


def publish(database: Database, settings: Settings, name: str, learnt: Learnt) -> Published:
    """A version of kind base with the new classes, and with those that were taught before."""
    for _ in range(ATTEMPTS):
        with database.read() as db:
            now = situation(db, name, settings, learnt.names)
        _require_backbone(now, name, learnt)
        prepared = _prepared(database, now, learnt)
        with suppress(_Moved), database.write() as db:
            model = _held(db, name, now, learnt)
            _require_free(db, name, model.id, learnt.names)  # a class may have been renamed: no version tells
            return _write(db, model, now, prepared, learnt)
    raise Conflict(f"model '{name}' changed faster than the base session could be written; start again")


def _require_within_limit(count: int, settings: Settings) -> None:
    if count > settings.max_classes:
        raise LimitReached(f"the model would have {count} classes, of {settings.max_classes} (PROTOQUAD_MAX_CLASSES)")


def _require_free(db: Session, model: str, model_id: ModelId, new: Collection[str]) -> None:
    taken = classes.taken_names(db, model_id, new)
    if taken:
        some = ", ".join(f"'{name}'" for name in taken[:TOLD])
        more = f" and {len(taken) - TOLD} more" if len(taken) > TOLD else ""
        raise NameTaken(
            f"model '{model}' has classes of these names already: {some}{more}; rename the folders, "
            "or delete those classes first"
        )


def _require_backbone(now: Situation, name: str, learnt: Learnt) -> None:
    """Somebody may have made the model meanwhile."""
    if now.backbone not in (None, learnt.state.backbone):
        raise Conflict(
            f"model '{name}' was made on {now.backbone} while a base session of {learnt.state.backbone} ran; "
            "start again with another model"
        )


def _held(db: Session, name: str, now: Situation, learnt: Learnt) -> Model:
    """The model's row, locked or new; raises `_Moved` unless the model is still what was prepared for."""
    if now.model_id is None:
        try:
            return catalogue.create(db, name, learnt.state.backbone, Certainty().temperature)
        except NameTaken as error:
            raise _Moved from error
    model = catalogue.locked(db, now.model_id)
    if now.head is None or (model.head, model.last_class) != (now.head.number, now.last_class):
        raise _Moved
    return model


def _write(db: Session, model: Model, now: Situation, prepared: _Prepared, learnt: Learnt) -> Published:
    number = VersionNumber(model.last_version + 1)
    guard = _by_class(learnt)
    for place, (name, shots) in enumerate(zip(learnt.names, learnt.state.bank.shots.tolist(), strict=True)):
        row = classes.add(db, model, name, shots=shots, since=number, status="learned")
        classes.add_guard(db, model.id, row.id, guard.get(place, []))
    version = versions.add(
        db,
        model,
        versions.NewVersion(
            "base",
            parent=now.head or versions.get(db, model.id, catalogue.UNTAUGHT),
            classes=len(prepared.rows),
            temperature=prepared.temperature,
            threshold=prepared.open_world.threshold,
            weights=base_blob(learnt.state),
            details=_details(prepared, learnt),
            prototypes=prepared.rows,
        ),
    )
    kept = len(prepared.rows) - len(learnt.names)
    return Published(version.number, len(learnt.names), kept, prepared.accuracy)


def _details(prepared: _Prepared, learnt: Learnt) -> dict[str, Any]:
    return {
        "accuracy": {"old": prepared.accuracy, "new": None},
        "unknown": prepared.open_world.details(),
        "pictures": learnt.pictures,
        "skipped": len(learnt.skipped),
    }


def _by_class(learnt: Learnt) -> dict[int, list[bytes]]:
    pictures: dict[int, list[bytes]] = {}
    if learnt.guard is not None:
        for place, data in zip(learnt.guard.places, learnt.guard.data, strict=True):
            pictures.setdefault(place, []).append(data)
    return pictures


def _prepared(database: Database, now: Situation, learnt: Learnt) -> _Prepared:
    class_ids = tuple(ClassId(now.last_class + 1 + place) for place in range(len(learnt.names)))
    bank = replace(learnt.state.bank, class_ids=class_ids)
    base = NearestClassMean(learnt.state.space, bank, Certainty())
    kept = _seen_anew(database, now, learnt, base)
    added = {class_id: Learned(new.prototype, new.shots) for class_id, new in kept.items()}
    distances, own = _guard_distances(base.changed(added, Certainty()), class_ids, learnt)
    held_out = _held_out(class_ids, distances, own, learnt)
    pooled = {**held_out, **{class_id: new.held_out for class_id, new in kept.items()}}
    return _Prepared(
        class_ids,
        (*_rows(bank, held_out), *(new.row(class_id) for class_id, new in kept.items())),
        calibrate(distances, own).temperature,
        detect_unknown(pooled, nearest_other(distances, own)),
        round(100 * float((distances.argmin(1) == own).float().mean()), 2) if len(own) else None,
    )


def _seen_anew(database: Database, now: Situation, learnt: Learnt, base: NearestClassMean) -> dict[ClassId, Taught]:
    """Classes that the model was taught before, their stored shots now seen by the new network."""
    if now.model_id is None or not now.taught:
        return {}
    with database.read() as db:
        pictures = classes.shots_of(db, now.model_id, now.taught)
    backbone, trunk = learnt.carrier()
    views = seen(backbone.framing, trunk, pictures, AUGMENTED)
    if views is None or views.class_ids != now.taught:
        raise Conflict("classes of this model have no stored pictures to be seen again by the new network")
    features = features_of(backbone.tail, views, CPU)
    return {class_id: taught(base, class_id, features[views.labels == class_id]) for class_id in views.class_ids}


def _guard_distances(
    classifier: NearestClassMean, class_ids: Sequence[ClassId], learnt: Learnt
) -> tuple[Tensor, Tensor]:
    """Guard pictures to every class (g, K), and the row of the true one (g,)."""
    if learnt.guard is None:
        return torch.zeros(0, len(classifier)), torch.zeros(0, dtype=torch.long)
    own = classifier.rows(class_ids[place] for place in learnt.guard.places)
    return classifier.distances(learnt.guard.features), torch.tensor(own)


def _held_out(class_ids: Sequence[ClassId], distances: Tensor, own: Tensor, learnt: Learnt) -> dict[ClassId, Tensor]:
    """How far each class's guard pictures are from it."""
    if learnt.guard is None:
        return {}
    apart = distances.gather(1, own[:, None])[:, 0]  # (g,)
    places = torch.tensor(learnt.guard.places)
    return {class_ids[place]: apart[places == place] for place in places.unique().tolist()}


def _rows(bank: PrototypeBank, held_out: Mapping[ClassId, Tensor]) -> list[PrototypeRow]:
    return [
        PrototypeRow(
            class_id,
            to_blob(prototype),
            shots,
            restart=True,
            held_out=to_blob(held_out[class_id]) if class_id in held_out else None,
        )
        for class_id, prototype, shots in zip(bank.class_ids, bank.prototypes, bank.shots.tolist(), strict=True)
    ]
