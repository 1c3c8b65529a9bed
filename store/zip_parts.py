"""The zip of a base session, in pieces: a worker on any machine reads it from the database that all of them share."""

from typing import IO

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from store.database import images_erased
from store.models import SessionId, ZipPart

PART_BYTES = 4 * 2**20  # a row of PostgreSQL is sent whole, and held several times in memory on its way


def add(db: Session, session_id: SessionId, file: IO[bytes]) -> int:
    """Store the file from its beginning; returns the number of pieces."""
    file.seek(0)
    number = 0
    while data := file.read(PART_BYTES):
        db.execute(insert(ZipPart).values(session_id=session_id, number=number, data=data))
        number += 1
    return number


def read(db: Session, session_id: SessionId, number: int) -> bytes | None:
    """One piece; None if there is none, because the session is over."""
    return db.execute(
        select(ZipPart.data).where(ZipPart.session_id == session_id, ZipPart.number == number)
    ).scalar_one_or_none()


def erase(db: Session, session_id: SessionId) -> None:
    db.execute(delete(ZipPart).where(ZipPart.session_id == session_id))
    images_erased(db)
