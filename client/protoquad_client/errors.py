"""What can go wrong, as exceptions. An answer that is a problem has the class of its `type`.

ProtoquadError
├── ServiceUnreachable        no answer: no connection, or it broke
│   ├── NothingSent           no connection: the service knows nothing of the request
│   └── AnswerTimeout         no answer in time
├── WaitTimeout               a session was not over in time
├── UnexpectedAnswer          an answer that no protoquad service gives
└── Problem                   the service has refused
    ├── InvalidImage          with `images`: which, and why
    ├── NameTaken, NotFound, QueueFull, …: see PROBLEMS
    └── …
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "PROBLEMS",
    "AnswerTimeout",
    "BodyTooLarge",
    "BodyTooSlow",
    "Busy",
    "Conflict",
    "DatabaseUnavailable",
    "IdempotencyKeyInFlight",
    "IdempotencyKeyReused",
    "ImageProblem",
    "InsufficientScope",
    "InsufficientStorage",
    "InternalError",
    "InvalidArchive",
    "InvalidFolder",
    "InvalidImage",
    "InvalidName",
    "InvalidParameter",
    "InvalidRequest",
    "InvalidZip",
    "LimitReached",
    "LocalOnly",
    "MalformedBody",
    "MalformedRequest",
    "NameTaken",
    "NoImages",
    "NotFound",
    "NotReady",
    "NothingSent",
    "ParameterProblem",
    "Problem",
    "ProtoquadError",
    "QueueFull",
    "ServiceDead",
    "ServiceUnreachable",
    "TooManyImages",
    "TooManyStreams",
    "Unauthorized",
    "UnexpectedAnswer",
    "UnknownBackbone",
    "UnsupportedMediaType",
    "WaitTimeout",
]


class ProtoquadError(Exception):
    """The base of all errors of this package."""


class ServiceUnreachable(ProtoquadError):
    """There was no answer: no connection, or it broke before the answer was complete."""


class NothingSent(ServiceUnreachable):
    """There was no connection, so the service knows nothing of the request."""


class AnswerTimeout(ServiceUnreachable):
    """There was no answer in time."""


class WaitTimeout(ProtoquadError, TimeoutError):
    """A session was not over in time; it goes on."""


class UnexpectedAnswer(ProtoquadError):
    """An answer that no protoquad service gives."""


@dataclass(frozen=True)
class ImageProblem:
    """One image that cannot be used."""

    index: int  # among the images of the call, counted from 0
    reason: str
    filename: str | None = None


@dataclass(frozen=True)
class ParameterProblem:
    """One parameter or field that cannot be used."""

    where: str
    reason: str


@dataclass(frozen=True)
class ProblemFacts:
    """What the answer says."""

    status: int
    detail: str
    type: str = "about:blank"
    title: str = ""
    request_id: str | None = None
    images: Sequence[ImageProblem] = ()
    errors: Sequence[ParameterProblem] = ()
    retry_after: float | None = None  # seconds


class Problem(ProtoquadError):
    """The service has refused. `detail` says what was asked, what is true and what to do."""

    def __init__(self, facts: ProblemFacts) -> None:
        super().__init__(facts)
        self.facts = facts
        self.status = facts.status
        self.type = facts.type
        self.title = facts.title
        self.detail = facts.detail
        self.request_id = facts.request_id
        self.errors = tuple(facts.errors)
        self.retry_after = facts.retry_after

    def __str__(self) -> str:
        return self.detail

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.detail!r}, status={self.status}, request_id={self.request_id!r})"


class InvalidImage(Problem):
    """Images that cannot be used: `images` names them."""

    def __init__(self, facts: ProblemFacts) -> None:
        super().__init__(facts)
        self.images = tuple(facts.images)


class MalformedBody(Problem):
    """The body cannot be read."""


class MalformedRequest(Problem):
    """The Content-Length cannot be read."""


class Unauthorized(Problem):
    """The key is missing, unknown or revoked."""


class InsufficientScope(Problem):
    """The key's scope is too small."""


class LocalOnly(Problem):
    """No key was made, and the request does not come from the service's own machine."""


class NotFound(Problem):
    """There is no such class, version, session, model or route."""


class BodyTooSlow(Problem):
    """The body did not arrive in time."""


class NameTaken(Problem):
    """The name is taken."""


class Conflict(Problem):
    """The request does not fit the present state."""


class LimitReached(Problem):
    """Too many classes, or shots of a class."""


class IdempotencyKeyInFlight(Problem):
    """A request with this key is being answered."""


class BodyTooLarge(Problem):
    """The body is too large."""


class UnsupportedMediaType(Problem):
    """The body has a type that the route does not take."""


class NoImages(Problem):
    """There is no image in the request."""


class TooManyImages(Problem):
    """There are too many images in the request."""


class InvalidName(Problem):
    """The name cannot be used."""


class InvalidParameter(Problem):
    """A parameter cannot be used."""


class InvalidRequest(Problem):
    """A field or parameter cannot be used."""


class InvalidArchive(Problem):
    """The file is no archive, is damaged, or holds what no release wrote."""


class InvalidZip(Problem):
    """A base session cannot learn from the zip."""


class InvalidFolder(Problem):
    """A base session cannot learn from the folder, or the operator has not allowed it."""


class UnknownBackbone(Problem):
    """There is no such backbone, or it cannot be prepared."""


class IdempotencyKeyReused(Problem):
    """The idempotency key belongs to a request with other content."""


class InternalError(Problem):
    """A fault of the service: quote the request id to its operator."""


class QueueFull(Problem):
    """Too much waits already, or the answer took too long."""


class Busy(Problem):
    """It is being loaded, or others change the model all the time."""


class TooManyStreams(Problem):
    """Too many event streams are open."""


class DatabaseUnavailable(Problem):
    """The service cannot reach its database; predictions go on."""


class NotReady(Problem):
    """The service cannot answer yet, or is stopping."""


class ServiceDead(Problem):
    """The service has to be restarted."""


class InsufficientStorage(Problem):
    """The service's disk is full; nothing was changed."""


# By the last part of `type`, which is stable.
PROBLEMS: dict[str, type[Problem]] = {
    "malformed-body": MalformedBody,
    "malformed-request": MalformedRequest,
    "unauthorized": Unauthorized,
    "insufficient-scope": InsufficientScope,
    "local-only": LocalOnly,
    "not-found": NotFound,
    "body-too-slow": BodyTooSlow,
    "name-taken": NameTaken,
    "conflict": Conflict,
    "limit-reached": LimitReached,
    "idempotency-key-in-flight": IdempotencyKeyInFlight,
    "body-too-large": BodyTooLarge,
    "unsupported-media-type": UnsupportedMediaType,
    "invalid-image": InvalidImage,
    "no-images": NoImages,
    "too-many-images": TooManyImages,
    "invalid-name": InvalidName,
    "invalid-parameter": InvalidParameter,
    "invalid-request": InvalidRequest,
    "invalid-archive": InvalidArchive,
    "invalid-zip": InvalidZip,
    "invalid-folder": InvalidFolder,
    "unknown-backbone": UnknownBackbone,
    "idempotency-key-reused": IdempotencyKeyReused,
    "internal-error": InternalError,
    "overloaded": QueueFull,
    "busy": Busy,
    "too-many-streams": TooManyStreams,
    "database-unavailable": DatabaseUnavailable,
    "not-ready": NotReady,
    "dead": ServiceDead,
    "insufficient-storage": InsufficientStorage,
}
