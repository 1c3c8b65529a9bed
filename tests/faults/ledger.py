"""What the callers were told: which classes are there, which are gone, and of what nobody can be sure.

A request whose connection broke, or that was answered 503, may have been done or not. It is unsure until the oracle has
looked; it is never allowed to be half done.
"""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from store.classes import digest
from tests.faults.drawn_images import COLOURS, picture
from tests.faults.made import Inboxes, MadeKey, MadeModel, MadeWebhook, Register

SHOTS = 3


@dataclass(eq=False)
class Taught:
    """A class as whoever taught it sees it."""

    model: str
    name: str
    lesson: tuple[bytes, ...]  # the pictures that it was first taught with
    begun: float  # when it was sent
    key: str | None
    colour: str  # of its pictures
    class_id: int | None = None
    answer: dict[str, Any] | None = None
    more: list[bytes] = field(default_factory=list)  # pictures that were added since
    maybe: list[list[bytes]] = field(default_factory=list)  # shots that were sent later and not answered
    going: list[bytes] = field(default_factory=list)  # shots whose deletion was sent and not answered
    leaving: bool = False  # a delete was sent and not answered
    renaming: str | None = None  # another name was sent and not answered
    taken: bool = False  # somebody works on it
    first_name: str = ""  # that it was taught with

    def __post_init__(self) -> None:
        self.first_name = self.name

    @property
    def pictures(self) -> list[bytes]:
        return [*self.lesson, *self.more]

    @property
    def sure(self) -> bool:
        return self.class_id is not None

    def __str__(self) -> str:
        return f"class {self.class_id} '{self.name}' of {self.model}"


@dataclass(frozen=True)
class Activation:
    model: str
    number: int
    over: float  # when it was answered, or was not


@dataclass(frozen=True)
class Sight:
    """What an answer to a prediction rested on."""

    model: str
    version: int
    class_ids: frozenset[int]


@dataclass(frozen=True)
class Shown:
    """An image that the service was asked about."""

    colour: str
    data: bytes


@dataclass(frozen=True)
class OnTheMove:
    """An image that was to go from one place to another, and nobody was told; it must be in one of them."""

    model: str
    sha256: str
    from_inbox: bool


class Ledger:
    """One for a whole run; callers write to it from their threads."""

    def __init__(self, models: tuple[str, ...]) -> None:
        self.models = models
        self.living: list[Taught] = []
        self.gone: list[Taught] = []
        self.activations: list[Activation] = []
        self.sights: list[Sight] = []
        self.on_the_move: list[OnTheMove] = []
        self.cancelled: dict[int, str | None] = {}  # sessions: the status that the answer has told
        self.keys: Register[MadeKey] = Register()
        self.webhooks: Register[MadeWebhook] = Register()
        self.further_models: Register[MadeModel] = Register()
        self.inboxes = Inboxes()
        self.complaints: list[str] = []
        self.operations: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._lessons = 0
        self._shown: dict[tuple[str, str], Shown] = {}

    def new_class(self, model: str, pick: int, *, keyed: bool) -> Taught | None:
        """Something to teach, with pictures that nobody has seen, if there is a colour left."""
        with self._lock:
            there = {taught.name for taught in self.living if taught.model == model}
            free = [colour for colour in COLOURS if colour not in there]
            if not free:
                return None
            name = free[pick % len(free)]
            key = f"lesson {self._lessons}" if keyed else None
            taught = Taught(model, name, tuple(self._pictures(name)), time.monotonic(), key, name, taken=True)
            self.living.append(taught)
            return taught

    def twin(self, of: Taught) -> Taught:
        """A second class of the same colour, under another name."""
        with self._lock:
            pictures = tuple(self._pictures(of.colour))
            name = f"{of.colour} {self._lessons}"
            taught = Taught(of.model, name, pictures, time.monotonic(), None, of.colour, taken=True)
            self.living.append(taught)
            return taught

    def class_of(self, model: str, shown: Shown) -> Taught:
        """A class whose only shot is an image that was shown."""
        name = self.new_name(shown.colour)
        with self._lock:
            taught = Taught(model, name, (shown.data,), time.monotonic(), None, shown.colour, taken=True)
            self.living.append(taught)
            return taught

    def new_name(self, begin: str) -> str:
        """That nothing was ever called."""
        with self._lock:
            self._lessons += 1
            return f"{begin} {self._lessons}"

    def image_to_show(self, model: str, colour: str) -> bytes:
        """An image that nobody has seen; if the service keeps it, `take_shown` knows it by its digest."""
        with self._lock:
            self._lessons += 1
            data = picture(colour, SHOTS * self._lessons)
            self._shown[model, digest(data)] = Shown(colour, data)
            return data

    def take_shown(self, model: str, sha256: str) -> Shown | None:
        with self._lock:
            return self._shown.pop((model, sha256), None)

    def more_pictures(self, taught: Taught) -> list[bytes]:
        with self._lock:
            return self._pictures(taught.colour)

    def _pictures(self, colour: str) -> list[bytes]:
        self._lessons += 1
        return [picture(colour, SHOTS * self._lessons + place) for place in range(SHOTS)]

    def take(self, model: str, pick: int) -> Taught | None:
        """A class that is there for certain and that nobody works on."""
        with self._lock:
            found = [one for one in self.living if one.model == model and one.sure and not (one.taken or one.leaving)]
            if not found:
                return None
            chosen = found[pick % len(found)]
            chosen.taken = True
            return chosen

    def take_two(self, model: str, pick: int) -> tuple[Taught, Taught] | None:
        first, second = self.take(model, pick), self.take(model, pick + 1)
        if first is not None and second is not None:
            return first, second
        for taught in (first, second):
            if taught is not None:
                self.give_back(taught)
        return None

    def unsure_where(self, model: str, data: bytes, *, from_inbox: bool) -> None:
        with self._lock:
            self.on_the_move.append(OnTheMove(model, digest(data), from_inbox))

    def give_back(self, taught: Taught) -> None:
        taught.taken = False

    def drop(self, taught: Taught) -> None:
        """It was never there."""
        with self._lock:
            self.living.remove(taught)

    def bury(self, taught: Taught) -> None:
        """It was there, and is gone for good."""
        with self._lock:
            self.living.remove(taught)
            self.gone.append(taught)

    def activated(self, model: str, number: int) -> None:
        with self._lock:
            self.activations.append(Activation(model, number, time.monotonic()))

    def saw(self, sight: Sight) -> None:
        with self._lock:
            self.sights.append(sight)

    def complain(self, text: str) -> None:
        with self._lock:
            self.complaints.append(text)

    def count(self, operation: str) -> None:
        with self._lock:
            self.operations[operation] += 1

    def may_be_behind(self, taught: Taught) -> bool:
        """Whether a version from before it may have been put in force since."""
        return any(one.model == taught.model and one.over > taught.begun for one in self.activations)
