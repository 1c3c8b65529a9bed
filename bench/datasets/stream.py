"""A few-shot class-incremental stream: a base session, then sessions of a few shots of new classes.

A stream that leaks test data cannot be built: a class is taught in one session, and no image occurs twice.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from core.errors import ProtoquadError


class DataError(ProtoquadError):
    """The files of a data set are missing, malformed or too few; the message says which and what to do."""


@dataclass(frozen=True)
class DatasetImage:
    """One labelled image. Its bytes are read only when `read` is called."""

    key: str  # stable and unique in its data set: a cache key, and the name in error messages
    class_id: int
    read: Callable[[], bytes] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Session:
    """The training images of one session, and the test images of its classes."""

    train: tuple[DatasetImage, ...]
    test: tuple[DatasetImage, ...]

    @property
    def class_ids(self) -> tuple[int, ...]:
        """The classes it teaches, in order of appearance."""
        return tuple(dict.fromkeys(image.class_id for image in self.train))


@dataclass(frozen=True)
class Stream:
    """Sessions in the order in which a method sees them."""

    name: str
    class_names: Mapping[int, str]
    sessions: tuple[Session, ...]

    def __post_init__(self) -> None:
        if not self.sessions:
            raise DataError(f"{self.name} has no session: a stream begins with a base session")
        for number, session in enumerate(self.sessions, start=1):
            _check_session(f"session {number} of {self.name}", session)
        taught = chain.from_iterable(session.class_ids for session in self.sessions)
        _require_unique(f"{self.name} teaches a class in two sessions", map(str, taught))
        images = chain.from_iterable(session.train + session.test for session in self.sessions)
        _require_unique(f"{self.name} uses an image twice", (image.key for image in images))

    @property
    def base(self) -> Session:
        return self.sessions[0]


def _check_session(name: str, session: Session) -> None:
    if not session.train:
        raise DataError(f"{name} has no training image")
    foreign = {image.class_id for image in session.test} - set(session.class_ids)
    if foreign:
        raise DataError(
            f"{name} tests classes that it does not teach: {sorted(foreign)}; "
            "its test images are those of its own classes only"
        )


def _require_unique(complaint: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{complaint}: {name}")
        seen.add(name)
