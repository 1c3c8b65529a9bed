"""API keys: a random secret that is shown once and stored as a digest.

A key has the form `pq_<id>_<secret>`. A digest without salt or stretching is enough: the secret has 256 random bits, so
no dictionary attack is possible.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.database import now
from store.errors import Conflict, NotThere
from store.models import ApiKey

SCOPES = ("predict", "teach", "admin")
PREFIX = "pq"
WHOLE = re.compile(rf"{PREFIX}_[0-9a-f]{{8}}_[0-9a-f]{{64}}")


@dataclass(frozen=True)
class KnownKey:
    """A valid key as the service keeps it in memory."""

    id: str
    digest: str
    scopes: frozenset[str]
    name: str = ""

    def matches(self, key: str) -> bool:
        """Compares in constant time."""
        return hmac.compare_digest(self.digest, digest(key))


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def key_id(key: str) -> str | None:
    """The public part of a text that has the form of a key."""
    parts = key.split("_")
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX else None


def create(db: Session, name: str, scopes: Iterable[str]) -> str:
    """Make a key and store its digest; the key itself cannot be read again."""
    key = f"{PREFIX}_{secrets.token_hex(4)}_{secrets.token_hex(32)}"
    _add(db, key, name, _listed(scopes))
    return key


def ensure(db: Session, key: str, name: str, scopes: Iterable[str]) -> ApiKey:
    """Store a key that was made elsewhere, unless it is stored already. A revoked key stays revoked."""
    if not WHOLE.fullmatch(key):
        raise ValueError(
            f"the key must have the form {PREFIX}_<8 hexadecimal digits>_<64 random hexadecimal digits>; "
            "a shorter one could be guessed"
        )
    listed = _listed(scopes)
    row = db.get(ApiKey, key_id(key))
    if row is None:
        return _add(db, key, name, listed)
    if not hmac.compare_digest(row.digest, digest(key)):
        raise Conflict(f"there is already a key {row.id} with another secret; give the new key another id")
    if row.scopes != listed:
        raise Conflict(f"the key {row.id} has the scopes '{row.scopes}', not '{listed}'; make another key for those")
    return row


def get(db: Session, own_id: str) -> ApiKey:
    row = db.get(ApiKey, own_id)
    if row is None:
        raise NotThere(f"there is no key '{own_id}'; `protoquad keys list` and GET /keys show all keys")
    return row


def _listed(scopes: Iterable[str]) -> str:
    wanted = set(scopes)
    if unknown := sorted(wanted.difference(SCOPES)):
        raise NotThere(f"there is no scope '{unknown[0]}'; the scopes are {', '.join(SCOPES)}")
    return " ".join(sorted(wanted, key=SCOPES.index))


def _add(db: Session, key: str, name: str, scopes: str) -> ApiKey:
    row = ApiKey(id=key_id(key), name=name, digest=digest(key), scopes=scopes, created_at=now(db))
    db.add(row)
    db.flush()
    return row


def everything(db: Session) -> list[ApiKey]:
    return list(db.scalars(select(ApiKey).order_by(ApiKey.created_at)))


def revoke(db: Session, own_id: str) -> ApiKey:
    row = get(db, own_id)
    row.revoked_at = row.revoked_at or now(db)
    db.flush()
    return row


def valid(db: Session) -> dict[str, KnownKey]:
    rows = db.scalars(select(ApiKey).where(ApiKey.revoked_at.is_(None)))
    return {row.id: KnownKey(row.id, row.digest, frozenset(row.scopes.split()), row.name) for row in rows}
