"""The JSON bodies of routes about the deployment itself: who calls, keys, limits, health."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from service.auth import Scope
from store.api_keys import SCOPES
from store.models import LONGEST_NAME, ApiKey


class WhoAmI(BaseModel):
    key_id: str | None = Field(description="The part of the key that may be shown; null: the service is open.")
    name: str | None
    scopes: list[Scope] = Field(description="What it may do; `teach` includes `predict`, `admin` includes both.")
    keys_required: bool = Field(description="False as long as no key was ever made.")


class KeyBody(BaseModel):
    id: str = Field(examples=["1a2b3c4d"])
    name: str = Field(examples=["camera"])
    scopes: list[Scope]
    created_at: datetime
    revoked_at: datetime | None

    @classmethod
    def of(cls, row: ApiKey) -> "KeyBody":
        scopes = [scope for scope in SCOPES if scope in row.scopes.split()]
        return cls.model_validate({**{name: getattr(row, name) for name in _PLAIN}, "scopes": scopes})


_PLAIN = ("id", "name", "created_at", "revoked_at")


class NewKeyBody(KeyBody):
    key: str = Field(description="Send it as `Authorization: Bearer …`. It is shown only here.")


class NewKey(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "camera", "scopes": ["admin"]}]})

    name: str = Field(min_length=1, max_length=LONGEST_NAME, examples=["camera"])
    scopes: list[Scope] = Field(min_length=1, max_length=len(SCOPES), examples=[["predict"]])


class Workers(BaseModel):
    alive: int = Field(description="Workers on this home that made a step lately, or that run a session anywhere.")
    last_seen: datetime | None = Field(description="The newest step of a worker on this home; null: none was seen.")


class Queue(BaseModel):
    sessions: int = Field(description="Sessions that wait, of all models.")
    images: int = Field(description="Images that wait for this replica's engine.")


class About(BaseModel):
    release: str
    backbone: str = Field(description="Of new models that name none.")
    engine: str = Field(examples=["openvino"])
    device: str = Field(examples=["cpu"])
    default_model: str
    limits: dict[str, int] = Field(description="By the names of their settings.", examples=[{"max_images": 64}])
    capture: Literal["off", "unknown", "uncertain", "all"] = Field(description="Which images predictions keep.")
    workers: Workers
    queue: Queue
    memory_bytes: int = Field(description="Of this replica.")
    uptime_seconds: float
