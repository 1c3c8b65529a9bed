"""A few-shot class-incremental stream: a base session, then sessions of a few shots of new classes.

A stream that leaks cannot be built: a class is taught in one session, and no picture occurs twice.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from bench.datasets.errors import DataError


@dataclass(frozen=True)
class Picture:
    """One labelled picture. Its bytes are read when asked for, never before."""

    key: str  # stable and unique in its data set: a cache key, and a name for messages
    class_id: int
    read: Callable[[], bytes] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Session:
    """What one session teaches, and the test pictures that it adds: those of its own classes."""

    train: tuple[Picture, ...]
    test: tuple[Picture, ...]

    @property
    def class_ids(self) -> tuple[int, ...]:
        """The classes it teaches, in order of appearance."""
        return tuple(dict.fromkeys(picture.class_id for picture in self.train))


@dataclass(frozen=True)
class Stream:
    """What a method sees, in order."""

    name: str
    class_names: Mapping[int, str]
    sessions: tuple[Session, ...]

    def __post_init__(self) -> None:
        if not self.sessions:
            raise DataError(f"{self.name} has no session: a stream begins with a base session")
        for number, session in enumerate(self.sessions, start=1):
            _check_session(f"session {number} of {self.name}", session)
        taught = chain.from_iterable(session.class_ids for session in self.sessions)
        _refuse_repeats(f"{self.name} teaches a class in two sessions", map(str, taught))
        pictures = chain.from_iterable(session.train + session.test for session in self.sessions)
        _refuse_repeats(f"{self.name} uses a picture twice", (picture.key for picture in pictures))

    @property
    def base(self) -> Session:
        return self.sessions[0]

    @property
    def incremental(self) -> tuple[Session, ...]:
        return self.sessions[1:]


def _check_session(name: str, session: Session) -> None:
    if not session.train:
        raise DataError(f"{name} teaches nothing: it has no training picture")
    strangers = {picture.class_id for picture in session.test} - set(session.class_ids)
    if strangers:
        raise DataError(
            f"{name} tests classes that it does not teach: {sorted(strangers)}; "
            "its test pictures are those of its own classes only"
        )


def _refuse_repeats(complaint: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{complaint}: {name}")
        seen.add(name)
