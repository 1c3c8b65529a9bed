"""A model as its tables show it."""

import hashlib
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from store import bank_rows, catalogue, versions
from store.models import ClassRow, Model, Prototype, Sample, SessionRow, Shot, Version


@dataclass(frozen=True)
class Known:
    """A model as its tables show it at one moment."""

    model: Model
    living: dict[int, ClassRow]
    shots: dict[int, list[str]]  # digests of the stored pictures of each class
    versions: dict[int, Version]
    sessions: list[SessionRow]
    banks: dict[int, dict[int, str]]  # of each kept version: a digest of what it knows of each class
    written: dict[int, set[int]]  # which classes each version has written
    inbox: dict[int, str]  # the digest of each of its images

    @property
    def head(self) -> int:
        return self.model.head

    def line(self, number: int) -> set[int]:
        """The version and its ancestors."""
        found = set()
        at: int | None = number
        while at is not None and at not in found:
            found.add(at)
            at = self.versions[at].parent if at in self.versions else None
        return found


def read_known(db: Session, name: str) -> Known:
    model = catalogue.get(db, name)
    own: dict[int, Version] = {
        row.number: row for row in db.scalars(select(Version).where(Version.model_id == model.id))
    }
    shots: dict[int, list[str]] = {}
    stored = select(Shot.class_id, Shot.sha256).where(Shot.model_id == model.id)
    for class_id, digest in db.execute(stored):
        shots.setdefault(class_id, []).append(digest)
    written: dict[int, set[int]] = {}
    rows = select(Prototype.version, Prototype.class_id).where(Prototype.model_id == model.id)
    for number, class_id in db.execute(rows):
        written.setdefault(number, set()).add(class_id)
    samples = select(Sample.id, Sample.sha256).where(Sample.model_id == model.id)
    living = select(ClassRow).where(ClassRow.model_id == model.id, ClassRow.deleted_at.is_(None))
    return Known(
        model,
        {row.id: row for row in db.scalars(living)},
        shots,
        own,
        list(db.scalars(select(SessionRow).where(SessionRow.model_id == model.id))),
        {number: _bank(db, row) for number, row in own.items() if row.kept},
        written,
        {row.id: row.sha256 for row in db.execute(samples)},
    )


def _bank(db: Session, version: Version) -> dict[int, str]:
    weights = versions.weights(db, version.model_id, version.weights) or b""
    return {
        known.class_id: hashlib.sha256(known.copies[-1] + (known.held_out or b"") + weights).hexdigest()
        for known in bank_rows.read_bank(db, version.model_id, version.number)
    }
