"""Settings: environment variables with the prefix PROTOQUAD_, each with its reason beside it."""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

DATABASE = "protoquad.db"  # the embedded one, in the home folder
MEGABYTE = 1024 * 1024
POSTGRESQL = {"postgres", "postgresql", "postgresql+psycopg"}
MEMORY = (None, "", ":memory:")  # SQLite without a file: every connection would have a database of its own
BROKER = re.compile(r"rediss?://([^@/?#]*@)?(\[[0-9a-fA-F:.]+\]|[^:@/?#\[\]]+)(:[0-9]{1,5})?(/[0-9]*)?(\?[^#]*)?")


class Settings(BaseSettings):
    """The defaults are the embedded service: one machine, no set-up."""

    model_config = SettingsConfigDict(
        env_prefix="PROTOQUAD_", extra="ignore", env_ignore_empty=True, allow_inf_nan=False
    )

    # Where things are
    home: Path = Field(Path(".protoquad"), description="Folder of the embedded database and of caches.")
    database_url: str = Field("", description="PostgreSQL (postgresql://…); empty: SQLite in the home folder.")
    cache: Path | None = Field(None, description="Folder of prepared backbones; unset: `backbones` in the home.")
    broker_url: str = Field("", description="Redis (redis://…) to carry hints; empty: the table is polled.")
    host: str = Field("127.0.0.1", description="Address to listen on; another than loopback needs an API key.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")

    # How it computes
    backbone: str = Field("efficientnet_lite0", description="Backbone of models made without naming one.")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:n; auto takes CUDA where there is one.")
    engine: Literal["auto", "openvino", "torch"] = Field("auto", description="auto: OpenVINO on a CPU, torch on CUDA.")
    prepare_seconds: PositiveFloat = Field(
        600.0, description="Time in which a backbone must be prepared for serving; then its process is killed."
    )
    pinned_classes: PositiveInt = Field(
        200_000, description="Classes of all pinned versions in memory together; 100,000 take about 512 MB."
    )

    # What a caller may send
    max_request_bytes: PositiveInt = Field(
        100 * MEGABYTE, description="Bytes of one request, counted as they arrive: 64 photographs of 1.5 MB."
    )
    max_pixels: PositiveInt = Field(50_000_000, description="Pixels of one picture, read from its header.")
    max_images: PositiveInt = Field(64, description="Pictures in one prediction.")
    max_shots: PositiveInt = Field(100, description="Pictures of one class.")
    max_classes: PositiveInt = Field(100_000, description="Classes of one model.")
    head_seconds: PositiveFloat = Field(10.0, description="Time in which a request's head must have arrived.")
    body_seconds: PositiveFloat = Field(60.0, description="Time in which a request must have arrived whole.")
    answer_seconds: PositiveFloat = Field(
        120.0, description="Time in which an image must have been seen; then the request is answered 503."
    )
    max_connections: PositiveInt = Field(
        1000, description="Open connections; where there are more, those that wait for their client are closed."
    )
    max_bodies_bytes: PositiveInt = Field(
        384 * MEGABYTE, description="Bytes of all requests in flight together; more are answered 503."
    )
    queue_images: PositiveInt = Field(512, description="Pictures waiting to be seen; more are answered 503.")
    max_streams: PositiveInt = Field(
        100, description="Event streams at a time; more are answered 503. As many may `Prefer: wait`, more do not wait."
    )

    # How sessions run
    session_delay: float = Field(
        2.0, ge=0, description="Seconds without teaching before a session starts: a burst becomes one session."
    )
    session_patience: float = Field(20.0, ge=0, description="Seconds after which it starts all the same.")
    lease_seconds: PositiveFloat = Field(30.0, description="Silence after which a worker counts as lost.")
    attempts: PositiveInt = Field(3, description="How often a session is tried before it has failed.")
    guard_pictures: PositiveInt = Field(
        400, description="Most pictures of old classes that a session is measured on: bounds its time."
    )
    keep_versions: PositiveInt = Field(20, description="Refined versions whose weights are kept for rolling back.")
    session_queue: Literal["cpu", "gpu"] = Field(
        "cpu", description="Which workers sessions wait for: cpu, any worker; gpu, one with CUDA."
    )
    queues: str = Field("", description="What a worker takes, as cpu,gpu; empty: both with CUDA, else cpu.")
    stall_seconds: PositiveFloat = Field(
        300.0, description="Time without a step after which a worker's session is another's, and the worker ends."
    )
    worker: bool | None = Field(
        None, description="Whether serve starts a worker process of its own; unset: with the embedded database."
    )

    # How it tells
    poll_seconds: PositiveFloat = Field(0.5, description="How often replicas and workers look for news.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least that is told.")
    log_format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, else JSON.")

    @field_validator("queues")
    @classmethod
    def _known_queues(cls, value: str) -> str:
        named = [name for part in value.split(",") if (name := part.strip())]
        unknown = set(named) - {"cpu", "gpu"}
        if unknown:
            raise ValueError(f"there is no queue {', '.join(sorted(unknown))}; there are cpu and gpu")
        return ",".join(named)

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        """Not repeated in the error: it may hold a password."""
        if value and not _names_a_database(value):
            raise ValueError(
                "it is neither of the form postgresql://user:password@host:port/name nor sqlite:///file; "
                "in a password, write special characters as %40 and the like"
            )
        return value

    @field_validator("broker_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        """Refused here, where it is not repeated: it may hold a password, and the clients' own complaints quote it."""
        if value and not BROKER.fullmatch(value):
            raise ValueError(
                "it is not of the form redis://user:password@host:port/number (or rediss://…, with TLS); "
                "in a password, write special characters as %40 and the like"
            )
        return value

    @property
    def url(self) -> str:
        """The database to use, with the driver this project is tested with."""
        if not self.database_url:
            return f"sqlite:///{(self.home / DATABASE).absolute()}"
        scheme, separator, rest = self.database_url.partition("://")
        return f"postgresql+psycopg://{rest}" if scheme in {"postgres", "postgresql"} else scheme + separator + rest

    @property
    def embedded(self) -> bool:
        return self.url.startswith("sqlite")

    def queues_of(self, device: str) -> tuple[str, ...]:
        """The queues that a worker on this kind of device reads."""
        if self.queues:
            return tuple(self.queues.split(","))
        return ("gpu", "cpu") if device == "cuda" else ("cpu",)

    @property
    def own_worker(self) -> bool:
        return self.embedded if self.worker is None else self.worker

    @property
    def prepared(self) -> Path:
        """Where backbones made ready for serving are."""
        return self.cache or self.home / "backbones"


def _names_a_database(url: str) -> bool:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return False
    return parsed.drivername in POSTGRESQL or (parsed.drivername == "sqlite" and parsed.database not in MEMORY)
