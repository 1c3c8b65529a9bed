"""The JSON bodies of what was measured: accuracy, maps, comparisons."""

from pydantic import BaseModel, ConfigDict, Field

from service.schemas import Accuracy, ClassName


class ClassAccuracy(Accuracy, ClassName): ...


class ShotRef(BaseModel):
    class_id: int
    shot_id: int = Field(description="Below zero: a guard image.")


class Confused(ClassName):
    as_class_id: int
    as_label: str
    count: int
    shots: list[ShotRef] = Field(description="The images, at most 20 of them.")


class VersionAccuracy(BaseModel):
    version: int
    images: int = Field(description="Held-out images that it, or the newest of its ancestors, has measured.")
    right: int
    refused: int
    accuracy: float | None = Field(description="Share of right answers; null: nothing was measured.")
    low: float | None
    high: float | None = Field(description="95 % confidence interval (Wilson).")
    classes: list[ClassAccuracy]
    confused: list[Confused] = Field(description="Most frequent first, at most 100.")
    calibration_error: float | None = Field(
        description="Mean difference of confidence and accuracy, in ten steps; null: fewer than 20 images."
    )
    measured_at_version: int | None = Field(description="The newest version among them that has measured images.")


class MapPrototype(ClassName):
    x: float
    y: float


class MapShot(ShotRef):
    x: float
    y: float


class MapAxes(BaseModel):
    explained: tuple[float, float] = Field(description="Shares of the differences between prototypes that are visible.")


class VersionMap(BaseModel):
    version: int
    axes: MapAxes
    prototypes: list[MapPrototype] = Field(description="At most 5,000.")
    shots: list[MapShot]


class Few(BaseModel):
    images: int
    right: int


class ClassChange(ClassName):
    model_config = ConfigDict(serialize_by_alias=True)

    from_: Few | None = Field(alias="from")
    to: Few | None


class Answer(BaseModel):
    label: str | None
    unknown: bool
    confidence: float


class SampleChange(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    sample_id: int
    from_: Answer = Field(alias="from")
    to: Answer


class Comparison(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    from_: int = Field(alias="from")
    to: int
    classes: list[ClassChange] = Field(description="Of which at least one of the two has measured images.")
    added: list[ClassName]
    removed: list[ClassName]
    samples: list[SampleChange] = Field(description="Images of the inbox that the two answer differently, at most 100.")
