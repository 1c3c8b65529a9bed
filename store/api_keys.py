"""API keys: a random secret shown once, stored as its digest.

A key reads `pq_<id>_<secret>`. A digest without salt or stretching is enough: the secret has 256 random bits, so there
is no dictionary to try.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.database import now
from store.errors import NotThere
from store.models import ApiKey

SCOPES = ("predict", "teach", "admin")
PREFIX = "pq"


@dataclass(frozen=True)
class KnownKey:
    """A key as the service holds it in memory."""

    id: str
    digest: str
    scopes: frozenset[str]

    def matches(self, key: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(self.digest, digest(key))


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def key_id(key: str) -> str | None:
    """The public part of something that looks like a key."""
    parts = key.split("_")
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX else None


def create(db: Session, name: str, scopes: Iterable[str]) -> str:
    """Store a new key and answer it, for the only time."""
    wanted = set(scopes)
    if unknown := sorted(wanted.difference(SCOPES)):
        raise NotThere(f"there is no scope '{unknown[0]}'; there are {', '.join(SCOPES)}")
    chosen = sorted(wanted, key=SCOPES.index)
    own_id = secrets.token_hex(4)
    key = f"{PREFIX}_{own_id}_{secrets.token_hex(32)}"
    db.add(ApiKey(id=own_id, name=name, digest=digest(key), scopes=" ".join(chosen), created_at=now(db)))
    db.flush()
    return key


def everything(db: Session) -> list[ApiKey]:
    return list(db.scalars(select(ApiKey).order_by(ApiKey.created_at)))


def revoke(db: Session, own_id: str) -> ApiKey:
    row = db.get(ApiKey, own_id)
    if row is None:
        raise NotThere(f"there is no key '{own_id}'; `protoquad keys list` shows them")
    row.revoked_at = row.revoked_at or now(db)
    db.flush()
    return row


def valid(db: Session) -> dict[str, KnownKey]:
    rows = db.scalars(select(ApiKey).where(ApiKey.revoked_at.is_(None)))
    return {row.id: KnownKey(row.id, row.digest, frozenset(row.scopes.split())) for row in rows}
