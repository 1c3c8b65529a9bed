"""The tables. What a model knows is written once and never changed; only heads, states and leases change."""

from datetime import datetime
from typing import Any, NewType

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Text,
    text,
)
from sqlalchemy.orm import Mapped, declared_attr, mapped_column

from store.table_base import Base as Base  # whoever imports it from here gets it with all tables
from store.table_base import Id

ModelId = NewType("ModelId", int)
SessionId = NewType("SessionId", int)
VersionNumber = NewType("VersionNumber", int)

LONGEST_NAME = 200


def _unique_where(condition: str, name: str, *columns: str) -> Index:
    """Of the rows that meet the condition, no two have the same values in these columns."""
    return Index(name, *columns, unique=True, sqlite_where=text(condition), postgresql_where=text(condition))


def _of_class() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["model_id", "class_id"], ["classes.model_id", "classes.id"], ondelete="CASCADE")


class Model(Base):
    """A named learner. Its row is also the lock under which its versions are numbered."""

    __tablename__ = "models"
    __table_args__ = ({"sqlite_autoincrement": True},)  # an id is never used again: caches outlive a deleted model

    id: Mapped[ModelId] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(LONGEST_NAME), unique=True)
    backbone: Mapped[str] = mapped_column(String(200))
    head: Mapped[VersionNumber] = mapped_column(Integer)  # the version that is served
    last_version: Mapped[VersionNumber] = mapped_column(Integer)  # the highest number in use
    last_class: Mapped[int] = mapped_column(Integer)
    renames: Mapped[int] = mapped_column(Integer, default=0)  # shows replicas that names have changed
    created_at: Mapped[datetime]


class ClassRow(Base):
    """A class. Its number within the model stays the same when it is renamed or moved to another database."""

    __tablename__ = "classes"
    __table_args__ = (
        _unique_where("deleted_at IS NULL", "uq_classes_living_name", "model_id", "name"),
        CheckConstraint("status IN ('provisional', 'learned')", name="status"),
    )

    model_id: Mapped[ModelId] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), primary_key=True)
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(LONGEST_NAME))
    status: Mapped[str] = mapped_column(String(20))
    shots: Mapped[int] = mapped_column(Integer)  # images that it was learned from, stored or not
    revision: Mapped[int] = mapped_column(Integer, default=1)  # counts how often its shots changed
    since: Mapped[VersionNumber] = mapped_column(Integer)  # the first version that knew it
    session_id: Mapped[SessionId | None] = mapped_column(ForeignKey("sessions.id", ondelete="SET NULL"), index=True)
    created_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]


class _ImageColumns:
    @declared_attr.directive
    def __table_args__(cls) -> tuple[ForeignKeyConstraint, Index]:  # noqa: N805
        return _of_class(), Index(None, "model_id", "class_id")

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    model_id: Mapped[ModelId] = mapped_column(BigInteger)
    class_id: Mapped[int] = mapped_column(Integer)
    sha256: Mapped[str] = mapped_column(String(64))
    data: Mapped[bytes]


class Shot(_ImageColumns, Base):
    """An image that a class was taught with."""

    __tablename__ = "shots"

    # A smaller copy that is enough for a session, if decoding the image is costly.
    scaled: Mapped[bytes | None] = mapped_column(sort_order=1)
    # Both are null for shots of earlier releases.
    filename: Mapped[str | None] = mapped_column(String(LONGEST_NAME), sort_order=2)
    created_at: Mapped[datetime | None] = mapped_column(sort_order=3)


class GuardImage(_ImageColumns, Base):
    """An image of a base class that was held out of its training."""

    __tablename__ = "guard_images"


class SessionRow(Base):
    """A session: a job, its lease, and its outcome."""

    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint("status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="status"),
        Index(None, "model_id", "status"),
        Index(None, "status", "ready_at"),
        # The database itself ensures that one session of a model runs at a time.
        _unique_where("status = 'running'", "uq_sessions_running", "model_id"),
        # A burst of teaching joins the session that waits; a base session waits by itself.
        _unique_where("status = 'queued'", "uq_sessions_queued", "model_id", "kind"),
        {"sqlite_autoincrement": True},  # an id is never used again, or an old attempt could match another session
    )

    id: Mapped[SessionId] = mapped_column(Id, primary_key=True)
    model_id: Mapped[ModelId] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"))
    status: Mapped[str] = mapped_column(String(20))
    attempt: Mapped[int] = mapped_column(Integer, default=0)  # only the newest attempt may write
    failures: Mapped[int] = mapped_column(Integer, default=0)
    owner: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[datetime | None]
    ready_at: Mapped[datetime]  # the earliest time to claim it
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    request_id: Mapped[str | None] = mapped_column(String(100))
    progress: Mapped[dict[str, Any] | None]
    verdict: Mapped[str | None] = mapped_column(String(20))  # promoted, rejected
    reason: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
    version: Mapped[VersionNumber | None] = mapped_column(Integer)  # that it made
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    queue: Mapped[str] = mapped_column(String(20), server_default="cpu")  # which workers may take it
    traceparent: Mapped[str | None] = mapped_column(String(55))  # of the request that queued it, as W3C writes it
    kind: Mapped[str] = mapped_column(String(20), server_default="incremental", default="incremental")  # or base
    task: Mapped[dict[str, Any] | None]  # of a base session: where its images are, and how long to train


class ZipPart(Base):
    """A piece of the zip that a base session will learn from; deleted when the session is over."""

    __tablename__ = "zip_parts"

    session_id: Mapped[SessionId] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)  # from 0
    data: Mapped[bytes]


class SessionEvent(Base):
    """A step of a session, for those who watch it."""

    __tablename__ = "session_events"
    __table_args__ = (Index(None, "session_id", "id"),)

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    session_id: Mapped[SessionId] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"))
    event: Mapped[str] = mapped_column(String(20))
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]


class Version(Base):
    """What a model knew at one time. Its bank has each class's newest prototype among itself and its ancestors."""

    __tablename__ = "versions"
    __table_args__ = (
        CheckConstraint("kind IN ('base', 'provisional', 'incremental', 'rollback', 'delete')", name="kind"),
    )

    model_id: Mapped[ModelId] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[VersionNumber] = mapped_column(Integer, primary_key=True, autoincrement=False)
    parent: Mapped[VersionNumber | None] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(20))
    base: Mapped[VersionNumber] = mapped_column(Integer)  # whose base weights and space it uses
    weights: Mapped[VersionNumber] = mapped_column(Integer)  # whose trained weights it uses
    classes: Mapped[int] = mapped_column(Integer)
    temperature: Mapped[float]
    threshold: Mapped[float | None]  # an image at a larger distance is unknown; null before the first calibration
    verdict: Mapped[str | None] = mapped_column(String(20))
    details: Mapped[dict[str, Any]]
    kept: Mapped[bool] = mapped_column(default=True)  # its content is stored: it can be pinned and activated
    session_id: Mapped[SessionId | None] = mapped_column(ForeignKey("sessions.id", ondelete="SET NULL"), index=True)
    created_at: Mapped[datetime]


class Weights(Base):
    """Weights of one version: a safetensors blob, with the tail as a sparse difference from its base."""

    __tablename__ = "weights"
    __table_args__ = (
        ForeignKeyConstraint(["model_id", "version"], ["versions.model_id", "versions.number"], ondelete="CASCADE"),
    )

    model_id: Mapped[ModelId] = mapped_column(BigInteger, primary_key=True)
    version: Mapped[VersionNumber] = mapped_column(Integer, primary_key=True, autoincrement=False)
    data: Mapped[bytes]


class Prototype(Base):
    """A class's prototype as of one version, written only if it changed. Without a vector: the class was deleted."""

    __tablename__ = "prototypes"
    __table_args__ = (_of_class(), Index(None, "model_id", "version"))

    model_id: Mapped[ModelId] = mapped_column(BigInteger, primary_key=True)
    class_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    version: Mapped[VersionNumber] = mapped_column(Integer, primary_key=True, autoincrement=False)
    vector: Mapped[bytes | None]
    shots: Mapped[int] = mapped_column(Integer)
    restart: Mapped[bool]  # learned anew: it is its own c0, and earlier copies do not belong to it
    held_out: Mapped[bytes | None]  # distances of images to a prototype made without them: they calibrate the threshold


class Statistics(Base):
    """Running μ and Σ (as a factor) of a class's copies, if they hold more than a single prototype does."""

    __tablename__ = "statistics"
    __table_args__ = (_of_class(), Index(None, "model_id", "version"))

    model_id: Mapped[ModelId] = mapped_column(BigInteger, primary_key=True)
    class_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    version: Mapped[VersionNumber] = mapped_column(Integer, primary_key=True, autoincrement=False)
    mean: Mapped[bytes]
    factor: Mapped[bytes]


class Measurement(Base):
    """What a version makes of one image that it was not made from; written only if it has measured it anew."""

    __tablename__ = "measurements"
    __table_args__ = (
        ForeignKeyConstraint(["model_id", "version"], ["versions.model_id", "versions.number"], ondelete="CASCADE"),
        Index(None, "model_id", "version"),
    )

    id: Mapped[int] = mapped_column(Id, primary_key=True)
    model_id: Mapped[ModelId] = mapped_column(BigInteger)
    version: Mapped[VersionNumber] = mapped_column(Integer)
    class_id: Mapped[int] = mapped_column(Integer)  # that the image is of
    shot_id: Mapped[int | None] = mapped_column(ForeignKey("shots.id", ondelete="CASCADE"), index=True)
    guard_id: Mapped[int | None] = mapped_column(ForeignKey("guard_images.id", ondelete="CASCADE"), index=True)
    nearest: Mapped[int] = mapped_column(Integer)  # the class that the version answers
    distance: Mapped[float]  # from its own class
    confidence: Mapped[float]  # of the answer
    refused: Mapped[bool]  # even the nearest class is beyond the threshold
    harmful: Mapped[bool | None]  # more shots of the class would be answered right without this one


class Sample(Base):
    """An image that a prediction has kept, with its answer. Its id was in the answer, so no database assigned it."""

    __tablename__ = "samples"
    __table_args__ = (Index(None, "model_id", "id"),)

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)  # grows with time
    model_id: Mapped[ModelId] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"))
    version: Mapped[VersionNumber] = mapped_column(Integer)  # that answered
    weights: Mapped[VersionNumber] = mapped_column(Integer)  # whose weights the feature was computed with
    unknown: Mapped[bool]
    confidence: Mapped[float]
    margin: Mapped[float]  # between the two most probable classes
    top: Mapped[dict[str, Any]]  # the answer
    feature: Mapped[bytes]
    sha256: Mapped[str] = mapped_column(String(64))
    data: Mapped[bytes]
    created_at: Mapped[datetime]


class ApiKey(Base):
    """An API key, stored as a digest. Its id is the part of the key that may be shown."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(LONGEST_NAME))
    digest: Mapped[str] = mapped_column(String(64))
    scopes: Mapped[str] = mapped_column(String(100))  # separated by spaces
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class IdempotencyKey(Base):
    """The answer to a request, committed together with what the request did."""

    __tablename__ = "idempotency_keys"

    model_id: Mapped[ModelId] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))  # of the request
    status: Mapped[int] = mapped_column(Integer)
    answer: Mapped[dict[str, Any]]
    session_id: Mapped[SessionId | None] = mapped_column(ForeignKey("sessions.id", ondelete="SET NULL"), index=True)
    created_at: Mapped[datetime] = mapped_column(index=True)


class Webhook(Base):
    """An address that is told of events of a model. Its row is also the lease under which one delivery is made."""

    __tablename__ = "webhooks"
    __table_args__ = (CheckConstraint("status IN ('active', 'disabled')", name="status"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    model_id: Mapped[ModelId] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), index=True)
    url: Mapped[str] = mapped_column(Text)
    events: Mapped[str] = mapped_column(String(200))  # separated by spaces
    secret: Mapped[str] = mapped_column(String(100))  # not a digest: deliveries are signed with it
    status: Mapped[str] = mapped_column(String(20), default="active")
    reason: Mapped[str | None] = mapped_column(Text)  # why it is disabled
    claims: Mapped[int] = mapped_column(Integer, default=0)  # only the newest one may write a result
    lease_until: Mapped[datetime | None]  # while a process makes a delivery
    failing_since: Mapped[datetime | None]  # of the first failure after the last success
    delivered: Mapped[int] = mapped_column(Integer, default=0)
    given_up: Mapped[int] = mapped_column(Integer, default=0)  # deliveries whose last attempt has failed
    last_delivery: Mapped[dict[str, Any] | None]  # the result of the newest attempt
    full_at: Mapped[datetime | None]  # when it was last told that the inbox is full
    created_at: Mapped[datetime]


class Delivery(Base):
    """An event on its way to a webhook, written with what it tells of; deleted when it has arrived."""

    __tablename__ = "deliveries"
    __table_args__ = (Index(None, "webhook_id", "due_at"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)  # the same in every attempt
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    type: Mapped[str] = mapped_column(String(40))
    body: Mapped[str] = mapped_column(Text)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    due_at: Mapped[datetime] = mapped_column(index=True)
    created_at: Mapped[datetime]
