"""The answers about versions as values: what each is, what it was measured to be worth, how two differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from protoquad_client.answers import Accuracy, ClassName, Verdict


@dataclass(frozen=True, slots=True)
class Version:
    number: int
    parent: int | None
    kind: Literal["base", "provisional", "incremental", "rollback", "delete"]
    active: bool
    kept: bool  # whether it can be pinned and activated
    classes: int
    session: int | None
    verdict: Verdict | None
    accuracy: Mapping[str, float | None] | None
    forgetting: float | None
    temperature: float
    threshold: float | None
    details: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ClassAccuracy(Accuracy):
    class_id: int
    label: str


@dataclass(frozen=True, slots=True)
class ShotRef:
    class_id: int
    shot_id: int


@dataclass(frozen=True, slots=True)
class Confused:
    class_id: int
    label: str
    as_class_id: int
    as_label: str
    count: int
    shots: tuple[ShotRef, ...]


@dataclass(frozen=True, slots=True)
class VersionAccuracy:
    version: int
    images: int
    right: int
    refused: int
    accuracy: float | None
    low: float | None
    high: float | None
    classes: tuple[ClassAccuracy, ...]
    confused: tuple[Confused, ...]
    calibration_error: float | None
    measured_at_version: int | None


@dataclass(frozen=True, slots=True)
class MapPrototype:
    class_id: int
    label: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class MapShot:
    class_id: int
    shot_id: int
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class MapAxes:
    explained: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class VersionMap:
    version: int
    axes: MapAxes
    prototypes: tuple[MapPrototype, ...]
    shots: tuple[MapShot, ...]


@dataclass(frozen=True, slots=True)
class Few:
    images: int
    right: int


@dataclass(frozen=True, slots=True)
class ClassChange:
    class_id: int
    label: str
    from_: Few | None
    to: Few | None


@dataclass(frozen=True, slots=True)
class ShortAnswer:
    label: str | None
    unknown: bool
    confidence: float


@dataclass(frozen=True, slots=True)
class SampleChange:
    """An image of the inbox that the two versions answer differently."""

    sample_id: int
    from_: ShortAnswer
    to: ShortAnswer


@dataclass(frozen=True, slots=True)
class Comparison:
    from_: int
    to: int
    classes: tuple[ClassChange, ...]
    added: tuple[ClassName, ...]
    removed: tuple[ClassName, ...]
    samples: tuple[SampleChange, ...]
