"""What administrators were told: which keys, webhooks and further models there are, and what left an inbox for good.

As in the ledger of classes, a request without an answer may have been done or not, and is unsure until the oracle has
looked.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar


@dataclass(eq=False)
class Made:
    """Something with a name that nothing else ever gets."""

    name: str
    sure: bool = False  # whoever made it was told that it is there, or the oracle has seen it
    leaving: bool = False  # a delete was sent and not answered
    taken: bool = True  # somebody works on it

    def __str__(self) -> str:
        return f"{type(self).__name__} '{self.name}'"


@dataclass(eq=False)
class MadeKey(Made):
    scopes: tuple[str, ...] = ()
    id: str | None = None
    secret: str | None = None  # the whole key; unknown for good if its making was not answered


@dataclass(eq=False)
class MadeWebhook(Made):
    """Its name is the path that events are posted to."""

    model: str = ""
    id: str | None = None
    secret: str | None = None
    since: int | None = None  # the newest version when it was first seen: it is told of those after it


@dataclass(eq=False)
class MadeModel(Made):
    original: str | None = None  # of an imported model
    archive: bytes | None = None
    compared: bool = False  # with its original
    base_key: str | None = None  # of the request for a base session
    base_session: int | None = None


Thing = TypeVar("Thing", bound=Made)


class Register(Generic[Thing]):
    """All things of one kind, those that are there and those that are gone."""

    def __init__(self) -> None:
        self.living: list[Thing] = []
        self.gone: list[Thing] = []
        self._lock = threading.Lock()

    def add(self, thing: Thing) -> Thing:
        with self._lock:
            self.living.append(thing)
            return thing

    def take(self, pick: int, fits: Callable[[Thing], bool] = lambda _: True) -> Thing | None:
        """One that is there for certain and that nobody works on."""
        with self._lock:
            found = [one for one in self.living if one.sure and not (one.taken or one.leaving) and fits(one)]
            if not found:
                return None
            chosen = found[pick % len(found)]
            chosen.taken = True
            return chosen

    def drop(self, thing: Thing) -> None:
        """It was never there."""
        with self._lock:
            self.living.remove(thing)

    def bury(self, thing: Thing) -> None:
        """It was there, and is gone for good."""
        with self._lock:
            self.living.remove(thing)
            self.gone.append(thing)

    def make_sure(self, is_there: Callable[[Thing], bool], fits: Callable[[Thing], bool] = lambda _: True) -> None:
        """Of what nobody was told: it was done or not. What should be there and is not is left for the checks."""
        for thing in [one for one in self.living if fits(one)]:
            if is_there(thing):
                thing.sure, thing.leaving = True, False
            elif not thing.sure:
                self.drop(thing)
            elif thing.leaving:
                self.bury(thing)
            thing.taken = False


@dataclass
class Inboxes:
    """Samples by their ids, which are never given twice."""

    erased: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # of each model, for good
    touched: set[int] = field(default_factory=set)  # somebody has asked to resolve or dismiss them
    judged: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # what was there after a round
    emptying: set[str] = field(default_factory=set)  # models whose inbox somebody has asked to empty since
    unsure: list[tuple[str, set[int]]] = field(default_factory=list)  # of such a request without an answer

    def erase(self, model: str, samples: Iterable[int]) -> None:
        self.erased[model] |= set(samples)
