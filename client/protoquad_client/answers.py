"""The answers of the service as values. Fields that a newer service adds are ignored; lists are tuples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

Item = TypeVar("Item")
AnySession = TypeVar("AnySession", bound="SessionState")
Capture = Literal["off", "unknown", "uncertain", "all"]
Scope = Literal["predict", "teach", "admin"]
Verdict = Literal["promoted", "rejected"]
WebhookEvent = Literal["version.published", "session.rejected", "inbox.full"]
OVER = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A part of a list."""

    items: tuple[Item, ...]
    next: str | None  # the cursor of the following page; None on the last one
    total: int | None = None  # on all pages, where the service counts them
    capture: Capture | None = None  # of the inbox: which images predictions keep now


# Classes and shots


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What a version makes of images that it was not made from."""

    images: int
    right: int
    refused: int
    low: float  # 95 % confidence interval of right / images
    high: float


@dataclass(frozen=True, slots=True)
class Class:
    id: int
    name: str
    status: Literal["provisional", "learned"]
    shots: int
    since: int  # the first version that knew it
    served: bool
    created_at: datetime
    accuracy: Accuracy | None = None
    cover: int | None = None  # an image to show for it: an id among its shots
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class ClassName:
    class_id: int
    label: str


@dataclass(frozen=True, slots=True)
class Shot:
    id: int  # below zero: of a guard image
    kind: Literal["shot", "guard"]
    filename: str | None
    created_at: datetime | None
    bytes: int
    sha256: str
    distance: float | None = None
    outlier: bool = False
    nearest: ClassName | None = None
    right: bool | None = None
    harmful: bool | None = None


# Sessions, and what teaching answers


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as it was when the service answered."""

    id: int
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    verdict: Verdict | None
    reason: str | None
    error: str | None
    version: int | None  # the version that it made
    attempt: int
    progress: Mapping[str, Any] | None
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    kind: Literal["incremental", "base"] = "incremental"

    @property
    def over(self) -> bool:
        return self.status in OVER


@dataclass(frozen=True, slots=True)
class Outlier:
    """A shot that is far from the others of its class; it counts all the same."""

    index: int  # among the images of the call
    filename: str | None
    distance: float
    message: str


@dataclass(frozen=True, slots=True)
class Taught(Generic[AnySession]):
    """What teaching and correcting answer: the class, the session that will refine it, the version that knows it."""

    class_: Class
    session: AnySession
    version: int
    outliers: tuple[Outlier, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event; `data` is its JSON."""

    name: str
    data: Mapping[str, Any]
    id: str | None = None  # pass it as `last` to go on after this event


# Predictions


@dataclass(frozen=True, slots=True)
class Candidate:
    label: str
    class_id: int
    confidence: float
    distance: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A stored shot that is near to the image."""

    class_id: int
    label: str
    shot_id: int
    distance: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """`label` and `class_id` are None when the image is unknown; `top` lists the nearest classes all the same."""

    label: str | None
    class_id: int | None
    confidence: float
    unknown: bool
    limit: float | None
    top: tuple[Candidate, ...]
    neighbours: tuple[Neighbour, ...] | None = None
    sample_id: int | None = None
    model: str = "default"
    version: int = 0  # the version that answered


@dataclass(frozen=True, slots=True)
class Sample:
    """An image of the inbox."""

    id: int
    created_at: datetime
    version: int
    label: str | None
    unknown: bool
    confidence: float
    margin: float
    group: int | None  # samples that look alike share a number
    sha256: str
    top: tuple[Candidate, ...] = ()


# Models, keys, the deployment


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    backbone: str
    version: int  # the active one
    classes: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewKey(Key):
    key: str = field(default="", repr=False)  # shown only in this answer


@dataclass(frozen=True, slots=True)
class WhoAmI:
    key_id: str | None
    name: str | None
    scopes: tuple[Scope, ...]
    keys_required: bool


@dataclass(frozen=True, slots=True)
class Workers:
    alive: int
    last_seen: datetime | None


@dataclass(frozen=True, slots=True)
class Queue:
    sessions: int
    images: int


@dataclass(frozen=True, slots=True)
class About:
    release: str
    backbone: str
    engine: str
    device: str
    default_model: str
    limits: Mapping[str, int]
    capture: Capture
    workers: Workers
    queue: Queue
    memory_bytes: int
    uptime_seconds: float


@dataclass(frozen=True, slots=True)
class SampleClass:
    """Images that come with the service, to try it: paths for `sample_image`."""

    name: str
    shots: tuple[str, ...]
    tests: tuple[str, ...]


# Webhooks


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came of one attempt to deliver an event."""

    type: str
    attempt: int
    at: datetime
    arrived: bool
    status: int | None  # that the receiver answered
    error: str | None
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Webhook:
    id: str
    url: str
    events: tuple[str, ...]
    status: Literal["active", "disabled"]
    reason: str | None  # why it is disabled
    failing_since: datetime | None
    waiting: int
    delivered: int
    given_up: int
    last_delivery: Delivery | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewWebhook(Webhook):
    """A webhook with what deliveries are signed with, which is shown only once."""

    secret: str
