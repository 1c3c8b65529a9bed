"""What a method is given and what it returns, and the settings of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from core.backbones import Backbone
from core.bank import ClassId
from core.base_session import BaseConfig
from core.base_training import Objective
from core.guard import Verdict
from core.incremental_session import IncrementalConfig
from core.progress import Report
from core.state import LearnerState, with_weights
from core.views import LabelledViews


@dataclass(frozen=True)
class Rival:
    """Hyper-parameters of methods other than ours; what is None is the default of the method that runs."""

    rate: float | None = None  # learning rate of the network
    head_rate: float | None = None  # learning rate of the classifier
    epochs: int | None = None
    batch: int | None = None
    strength: float | None = None  # of what the method adds to cross-entropy or to a class mean
    exemplars: int | None = None  # images of each base class that are kept
    width: int | None = None  # of a random projection
    fraction: float | None = None  # share of the parameters that may change


@dataclass(frozen=True)
class RivalValues:
    """`Rival` with every value known."""

    rate: float = 0.01
    head_rate: float = 0.01
    epochs: int = 10
    batch: int = 64
    strength: float = 1.0
    exemplars: int = 5
    width: int = 2000
    fraction: float = 0.1


@dataclass(frozen=True)
class Setup:
    """All settings that change the result of a run."""

    method: str = "protoquad"
    base: BaseConfig = field(default_factory=BaseConfig)
    incremental: IncrementalConfig = field(default_factory=IncrementalConfig)
    rival: Rival = field(default_factory=Rival)
    gate: bool = True
    replay: bool = True  # learn from the shots of earlier sessions again
    views: int = 8  # augmented views of every training image, beside the centre view
    guard_per_class: int = 2  # base images held out of training, to measure on

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"there is no method {self.method!r}; there are {', '.join(METHODS)}")

    @property
    def values(self) -> RivalValues:
        """The hyper-parameters of this run: those that are set, else the defaults of the method."""
        given = {item.name: getattr(self.rival, item.name) for item in fields(Rival)}
        known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return replace(METHODS[self.method].defaults, **known)

    @property
    def read_by_objective(self) -> dict[str, Any]:
        """Those that change the base session; runs that differ in others share it."""
        return {name: getattr(self.values, name) for name in METHODS[self.method].objective_reads}


@dataclass(frozen=True, eq=False)
class SessionContext:
    """The input of a method for one session; `backbone` has the weights of `state`."""

    backbone: Backbone
    base: LearnerState  # after the base session
    state: LearnerState
    shots: LabelledViews  # none after the base session, for a method that `answers_at_once`
    old_shots: LabelledViews | None  # of the sessions before
    guard: LabelledViews | None  # of the base classes
    setup: Setup
    device: torch.device
    report: Report
    base_images: LabelledViews | None = None  # what the base session was trained on
    pretrained: Backbone | None = None  # with the weights before the base session

    @property
    def all_base_images(self) -> LabelledViews:
        if self.base_images is None:
            raise ValueError(f"{self.setup.method} needs the images of a base session")
        return self.base_images

    @property
    def all_shots(self) -> LabelledViews:
        """Of this session and of those before."""
        return self.shots if self.old_shots is None else self.old_shots.joined(self.shots)

    @property
    def base_network(self) -> Backbone:
        """The backbone as the base session left it."""
        return with_weights(self.pretrained or self.backbone, self.base.weights)

    @property
    def class_ids(self) -> tuple[ClassId, ...]:
        """Those of the bank, in its order, then those of this session."""
        return self.state.bank.class_ids + self.shots.class_ids


@dataclass(frozen=True, eq=False)
class Outcome:
    """The next state; a method may bring a classifier of features of its own, else the bank's classes are compared."""

    state: LearnerState
    verdict: Verdict | None = None
    nearest: Callable[[Tensor], list[ClassId]] | None = None


Kept = Literal["vectors", "bank", "exemplars", "nodes", "images", "gram"]


@dataclass(frozen=True)
class Method:
    """`knobs` are the one or two settings that `bench tune` chooses, among as many candidates for each method."""

    learn: Callable[[SessionContext], Outcome]
    knobs: tuple[str, ...] = ("rival.rate", "rival.strength")
    defaults: RivalValues = field(default_factory=RivalValues)
    keeps: Kept = "vectors"  # between sessions, beside the network: see `memory`
    objective: Callable[[RivalValues], Objective] | None = None  # with which the base session goes on
    objective_reads: tuple[str, ...] = ()  # the hyper-parameters that it is given; others keep their defaults
    answers_at_once: bool = False  # its classifier also answers after the base session


METHODS: dict[str, Method] = {}  # filled by the package


def register(methods: Mapping[str, Method]) -> None:
    METHODS.update(methods)
