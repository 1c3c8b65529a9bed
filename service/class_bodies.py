"""Classes as answers show them: with an image to show for each, and with what was measured of it."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from learners.version_loader import LoadedVersion
from service.schemas import ClassBody
from store import images
from store.images import Stored
from store.models import ClassRow


def class_bodies(db: Session, active: LoadedVersion, rows: Sequence[ClassRow]) -> list[ClassBody]:
    """In the order of the rows; three queries, however many there are."""
    stored = images.stored(db, active.model_id, [row.id for row in rows])
    return [
        ClassBody.of(row, known=row.id in active.classifier.known_ids, stored=stored.get(row.id, Stored()))
        for row in rows
    ]
