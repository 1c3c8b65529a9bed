"""Classes as answers show them: with an image to show for each, and with what was measured of it."""

from collections.abc import Collection, Sequence

import torch
from sqlalchemy.orm import Session

from core.held_out import outlying
from learners.version_loader import LoadedVersion
from service.schemas import Accuracy, ClassBody, ShotBody
from store import images, measurements
from store.images import ImageFacts, Stored
from store.measurements import Measured
from store.models import ClassRow


def class_bodies(db: Session, active: LoadedVersion, rows: Sequence[ClassRow]) -> list[ClassBody]:
    """In the order of the rows; three queries, however many there are."""
    ids = [row.id for row in rows]
    stored = images.stored(db, active.model_id, ids)
    measured = measurements.by_class(measurements.newest_of(db, active.model_id, active.number, ids))
    return [
        ClassBody.of(
            row,
            known=row.id in active.classifier.known_ids,
            stored=stored.get(row.id, Stored()),
            accuracy=accuracy_of(measured.get(row.id, [])),
        )
        for row in rows
    ]


def accuracy_of(found: Collection[Measured]) -> Accuracy | None:
    """None if nothing was measured."""
    return None if not found else Accuracy.model_validate(measurements.summary(found))


def shot_bodies(db: Session, active: LoadedVersion, class_id: int, found: Sequence[ImageFacts]) -> list[ShotBody]:
    """The images of a class, each with what the active version makes of it."""
    measured = {one.image: one for one in measurements.newest_of(db, active.model_id, active.number, [class_id])}
    shots = [one for one in measured.values() if one.image > 0]
    far = outlying(torch.tensor([one.distance for one in shots]))
    outliers = {one.image for one, is_far in zip(shots, far, strict=True) if is_far}
    return [ShotBody.of(facts, measured.get(facts.id), active.names, outlier=facts.id in outliers) for facts in found]
