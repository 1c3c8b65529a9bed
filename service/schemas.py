"""The JSON bodies of requests and answers, with examples that can be pasted."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from store.images import ImageFacts, Stored
from store.measurements import Measured
from store.models import ClassRow, Model, SessionRow, Version

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next: str | None = Field(description="Pass it as `cursor` to get the next page; null on the last one.")


class CountedPage(Page[Item], Generic[Item]):
    total: int = Field(description="How many there are on all pages.")


class Accuracy(BaseModel):
    """What a version makes of images that it was not made from."""

    images: int = Field(description="Held-out images that were measured.", examples=[5])
    right: int = Field(description="Those that are nearest to their own class.", examples=[4])
    refused: int = Field(description="Those that are farther from every class than the threshold.", examples=[0])
    low: float = Field(description="95 % confidence interval of right / images (Wilson): its lower end.")
    high: float = Field(description="Its upper end.")


class ClassBody(BaseModel):
    id: int = Field(examples=[7])
    name: str = Field(examples=["snowy owl"])
    status: Literal["provisional", "learned"] = Field(
        description="provisional: served, and waits for a session; learned: a session has refined it."
    )
    shots: int = Field(description="Images that it was learned from.", examples=[5])
    since: int = Field(description="The first version that knew it.", examples=[12])
    served: bool = Field(description="Whether the active version knows it; false after a rollback to before it.")
    created_at: datetime
    accuracy: Accuracy | None = Field(None, description="Measured for the active version; null: nothing was measured.")
    cover: int | None = Field(None, description="An image to show for it: an id among its shots.", examples=[31])
    guarded: bool = Field(
        False,
        description="A base class: it was learned from more images than are stored.",
    )

    @classmethod
    def of(
        cls, row: ClassRow, *, known: bool, stored: Stored | None = None, accuracy: Accuracy | None = None
    ) -> "ClassBody":
        return cls(
            accuracy=accuracy,
            cover=stored.cover if stored else None,
            guarded=stored is not None and row.shots > stored.shots,
            id=row.id,
            name=row.name,
            status="provisional" if row.status == "provisional" else "learned",
            shots=row.shots,
            since=row.since,
            served=known,
            created_at=row.created_at,
        )


class ClassName(BaseModel):
    class_id: int
    label: str


class ShotBody(BaseModel):
    id: int = Field(description="Below zero: of a guard image.", examples=[31])
    kind: Literal["shot", "guard"] = Field(description="guard: held out of training, to measure versions on.")
    filename: str | None = Field(description="Null: it had none, or an earlier release stored it.")
    created_at: datetime | None = Field(description="Null: an earlier release stored it.")
    bytes: int
    sha256: str
    distance: float | None = Field(None, description="From its class made without it, when it was last measured.")
    outlier: bool = Field(False, description="Whether it is far from the other shots of its class.")
    nearest: ClassName | None = Field(None, description="What the active version answers for it when it is held out.")
    right: bool | None = Field(None, description="Whether that is its own class.")
    harmful: bool | None = Field(
        None, description="Whether more held-out shots of its class would be answered right without it."
    )

    @classmethod
    def of(cls, facts: ImageFacts, measured: Measured | None, names: Mapping[int, str], *, outlier: bool) -> "ShotBody":
        known: dict[str, Any] = {name: getattr(facts, name) for name in _FACTS}
        if measured is not None:
            nearest = {"class_id": measured.nearest, "label": names.get(measured.nearest, f"class {measured.nearest}")}
            about = {"distance": round(measured.distance, 6), "right": measured.right, "harmful": measured.harmful}
            known |= {**about, "nearest": nearest, "outlier": outlier}
        return cls.model_validate(known)


_FACTS = ("id", "kind", "filename", "created_at", "bytes", "sha256")


class SessionBody(BaseModel):
    id: int = Field(examples=[3])
    kind: Literal["incremental", "base"] = Field(
        "incremental", description="incremental: refines what was taught; base: learns a zip or a folder."
    )
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    verdict: Literal["promoted", "rejected"] | None = Field(description="Of the gate, once the session has succeeded.")
    reason: str | None
    error: str | None
    version: int | None = Field(description="The version that it made.")
    attempt: int
    progress: dict[str, Any] | None = Field(
        description="Stage, epoch, episode, losses, and the fraction done (0 to 1)."
    )
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, row: SessionRow) -> "SessionBody":
        return cls.model_validate(row)


class VersionBody(BaseModel):
    number: int = Field(examples=[12])
    parent: int | None
    kind: Literal["base", "provisional", "incremental", "rollback", "delete"]
    active: bool = Field(description="Whether it is the active version.")
    kept: bool = Field(description="Whether it can be pinned and activated.")
    classes: int
    session: int | None
    verdict: Literal["promoted", "rejected"] | None
    accuracy: dict[str, float | None] | None = Field(description="Percent on guard images (old) and new shots (new).")
    forgetting: float | None = Field(description="Percentage points lost on the old classes; negative if gained.")
    temperature: float
    threshold: float | None = Field(description="An image at a larger distance is unknown; null: not calibrated yet.")
    details: dict[str, Any]
    created_at: datetime

    @classmethod
    def of(cls, row: Version, head: int) -> "VersionBody":
        details = dict(row.details)
        return cls.model_validate(
            {
                "number": row.number,
                "parent": row.parent,
                "kind": row.kind,
                "active": row.number == head,
                "kept": row.kept,
                "classes": row.classes,
                "session": row.session_id,
                "verdict": row.verdict,
                "accuracy": details.get("accuracy"),
                "forgetting": details.get("forgetting"),
                "temperature": row.temperature,
                "threshold": row.threshold,
                "details": details,
                "created_at": row.created_at,
            }
        )


class Outlier(BaseModel):
    index: int
    filename: str | None
    distance: float
    message: str = Field(examples=["this image is far from the others of its class; is it the right one?"])


class TaughtBody(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    class_: ClassBody = Field(alias="class")
    session: SessionBody
    version: int = Field(description="The version that knows it; already active on this replica.")
    outliers: list[Outlier] = Field(description="Shots that are far from the others of their class. They are used too.")


class Rename(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(examples=["snowy owl"])


class Merge(BaseModel):
    model_config = ConfigDict(extra="forbid")

    into: int = Field(ge=1, lt=2**31, description="Id of the class that gets the images.", examples=[2])


class Move(BaseModel):
    """One of the two."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"to": 2}]})

    to: int | None = Field(None, ge=1, lt=2**31, description="Id of the class that gets the shot.", examples=[2])
    to_new: str | None = Field(None, description="Name of a new class that gets it.", examples=["barn owl"])


class Candidate(BaseModel):
    label: str
    class_id: int
    confidence: float
    distance: float


class Neighbour(BaseModel):
    class_id: int
    label: str
    shot_id: int
    distance: float


class PredictionBody(BaseModel):
    label: str | None
    class_id: int | None
    confidence: float = Field(description="Of the nearest class, even if the image is unknown.")
    unknown: bool
    limit: float | None = Field(
        description="An image farther than this from its nearest class is unknown; null: not calibrated yet."
    )
    top: list[Candidate]
    neighbours: list[Neighbour] | None = Field(None, description="With `explain`: the nearest shots, nearest first.")
    sample_id: int | None = Field(None, description="Where images are kept: its id in the inbox; null: not this one.")


class PredictionsBody(BaseModel):
    model: str
    version: int
    predictions: list[PredictionBody]


class NewModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(examples=["birds"], description="Lower-case letters, digits, - and _; at most 63 characters.")
    backbone: str | None = Field(
        None, description="The deployment's default if left out.", examples=["efficientnet_lite0"]
    )


class ModelBody(BaseModel):
    name: str
    backbone: str
    version: int = Field(description="The active version.")
    classes: int
    created_at: datetime

    @classmethod
    def of(cls, row: Model, classes: int) -> "ModelBody":
        return cls(name=row.name, backbone=row.backbone, version=row.head, classes=classes, created_at=row.created_at)
