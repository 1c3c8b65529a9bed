"""The JSON bodies of the inbox."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.schemas import Candidate, CountedPage


class SampleBody(BaseModel):
    id: int
    created_at: datetime
    version: int = Field(description="The version that answered.")
    label: str | None = Field(description="Its answer; null: unknown.")
    unknown: bool
    confidence: float
    margin: float = Field(description="Between the two most probable classes: small where it was unsure.")
    group: int | None = Field(description="Samples that look alike share a number, largest group first.")
    sha256: str
    top: list[Candidate]


class InboxPage(CountedPage[SampleBody]):
    capture: Literal["off", "unknown", "uncertain", "all"] = Field(description="Which images predictions keep now.")


class Resolve(BaseModel):
    """Samples, and one of the three things to do with them."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"samples": [858993459200], "class_id": 1}]}
    )

    samples: list[int] = Field(min_length=1, max_length=1000)
    class_id: int | None = Field(None, ge=1, lt=2**31, description="They are shots of this class.")
    name: str | None = Field(None, description="They are shots of a new class of this name.")
    dismiss: bool = Field(False, description="They are of no use.")

    @property
    def choices(self) -> list[Any]:
        return [one for one in (self.class_id, self.name, self.dismiss or None) if one is not None]
