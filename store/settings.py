"""Settings: environment variables with the prefix PROTOQUAD_, each with its description."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

DATABASE = "protoquad.db"  # the embedded one, in the home folder
MEGABYTE = 1024 * 1024
POSTGRESQL = {"postgres", "postgresql", "postgresql+psycopg"}
MEMORY = (None, "", ":memory:")  # SQLite without a file: every connection would have a database of its own
OTLP = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
BROKER = re.compile(r"rediss?://([^@/?#]*@)?(\[[0-9a-fA-F:.]+\]|[^:@/?#\[\]]+)(:[0-9]{1,5})?(/[0-9]*)?(\?[^#]*)?")

Network = IPv4Network | IPv6Network


class Settings(BaseSettings):
    """The defaults are those of the embedded service: one machine, no set-up."""

    model_config = SettingsConfigDict(
        env_prefix="PROTOQUAD_",
        extra="ignore",
        env_ignore_empty=True,
        allow_inf_nan=False,
        populate_by_name=True,
        loc_by_alias=False,  # errors name the field, also if a variable has an older name
    )

    # Where things are
    home: Path = Field(Path(".protoquad"), description="Folder of the embedded database and of caches.")
    database_url: str = Field("", description="PostgreSQL (postgresql://…); empty: SQLite in the home folder.")
    cache: Path | None = Field(None, description="Folder of compiled backbones; unset: `backbones` in the home folder.")
    scratch: Path | None = Field(
        None, description="Folder with room for the images of a base session while it runs; unset: the home folder."
    )
    weights: Path | None = Field(
        None,
        description="Folder of weight files, each named as its network (`resnet18.pth`); before packages and hubs.",
    )
    broker_url: str = Field("", description="Redis (redis://…) for notifications; empty: the database is polled.")
    host: str = Field("127.0.0.1", description="Address to listen on; any other than loopback needs an API key.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0: any free port.")

    # How it computes
    backbone: str = Field("efficientnet_lite0", description="Backbone of new models that name none.")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:n; auto: CUDA if there is a GPU, else the CPU.")
    engine: Literal["auto", "openvino", "torch"] = Field("auto", description="auto: OpenVINO on a CPU, torch on CUDA.")
    prepare_seconds: PositiveFloat = Field(
        600.0, description="Seconds in which a backbone must be compiled; then the process that does it is killed."
    )
    pinned_classes: PositiveInt = Field(
        200_000, description="Most classes of all pinned versions in memory together; 100,000 take about 512 MB."
    )

    # What a caller may send
    max_request_bytes: PositiveInt = Field(
        100 * MEGABYTE, description="Most bytes of one request, counted as they arrive: 64 photographs of 1.5 MB."
    )
    max_zip_bytes: PositiveInt = Field(
        256 * MEGABYTE,
        description="Most bytes of a zip for a base session, packed and unpacked: 2,500 photographs of 100 KB.",
    )
    base_folders: str = Field(
        "", description="Folders that `POST /base` may learn from, as /data/birds:/data/cars; empty: none."
    )
    max_pixels: PositiveInt = Field(50_000_000, description="Most pixels of one image, read from its header.")
    max_images: PositiveInt = Field(64, description="Most images in one prediction.")
    max_shots: PositiveInt = Field(100, description="Most shots of one class.")
    max_classes: PositiveInt = Field(100_000, description="Most classes of one model.")
    head_seconds: PositiveFloat = Field(10.0, description="Seconds in which the head of a request must arrive.")
    body_seconds: PositiveFloat = Field(60.0, description="Seconds in which a whole request must arrive.")
    answer_seconds: PositiveFloat = Field(
        120.0, description="Seconds in which images must be processed; then the request is answered with 503."
    )
    max_connections: PositiveInt = Field(
        1000, description="Most open connections; if there are more, those that wait for their client are closed."
    )
    max_bodies_bytes: PositiveInt = Field(
        384 * MEGABYTE, description="Most bytes of all requests in flight together; more are answered with 503."
    )
    queue_images: PositiveInt = Field(512, description="Most images that wait; more are answered with 503.")
    max_streams: PositiveInt = Field(
        100, description="Most event streams, and most requests with `Prefer: wait`; others get 503, or do not wait."
    )

    # What predictions keep
    capture: Literal["off", "unknown", "uncertain", "all"] = Field(
        "off", description="Which predicted images are kept for the inbox, for people to look at and to teach with."
    )
    capture_rate: PositiveFloat = Field(
        10.0, description="Most images a second that a process sends to the inbox, after a first 100."
    )
    capture_images: PositiveInt = Field(1000, description="Most images in the inbox of a model; the oldest go first.")
    capture_bytes: PositiveInt = Field(256 * MEGABYTE, description="Most bytes of the images in the inbox of a model.")
    capture_days: PositiveFloat = Field(30.0, description="Days after which an image leaves the inbox.")

    # What it tells others
    webhook_networks: str = Field(
        "",
        description="Networks that webhooks may reach although they are private, also without TLS, as "
        "10.0.0.0/8,127.0.0.1; empty: public addresses over https only.",
    )
    webhook_seconds: float = Field(15.0, gt=0, le=60, description="Seconds in which a webhook's receiver must answer.")
    otlp_endpoint: str = Field(
        "",
        description="OpenTelemetry collector (http://…:4318) that gets traces, also as `OTEL_EXPORTER_OTLP_ENDPOINT`; "
        "empty: there are no traces.",
        validation_alias=AliasChoices("PROTOQUAD_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    )

    # How sessions run
    session_delay: float = Field(
        2.0, ge=0, description="Seconds without teaching before a session starts: a burst becomes one session."
    )
    session_patience: float = Field(20.0, ge=0, description="Seconds after which a session starts in any case.")
    lease_seconds: PositiveFloat = Field(30.0, description="Seconds without a renewed lease until a worker is lost.")
    attempts: PositiveInt = Field(3, description="Failed attempts after which a session has failed.")
    guard_images: PositiveInt = Field(
        400,
        description="Most images of old classes that a session is measured on; bounds the time it takes.",
        validation_alias=AliasChoices("PROTOQUAD_GUARD_IMAGES", "PROTOQUAD_GUARD_PICTURES"),  # the second: its old name
    )
    replay: Literal["on", "off"] = Field(
        "on", description="Whether sessions learn from the stored shots of old classes again; off: as in the paper."
    )
    replay_shots: PositiveInt = Field(
        600, description="Most shots of old classes that a session learns from again; with more, it replays none."
    )
    keep_versions: PositiveInt = Field(20, description="Refined versions whose weights are kept for rolling back.")
    session_queue: Literal["cpu", "gpu"] = Field(
        "cpu", description="Which workers run sessions: cpu: any worker; gpu: only one with CUDA."
    )
    queues: str = Field("", description="Queues that a worker reads, as cpu,gpu; empty: both with CUDA, else cpu.")
    stall_seconds: PositiveFloat = Field(
        300.0, description="Seconds without progress after which a worker ends and another takes its session."
    )
    worker: bool | None = Field(
        None, description="Whether serve starts a worker process of its own; unset: with the embedded database."
    )

    # What it polls and logs
    poll_seconds: PositiveFloat = Field(0.5, description="Seconds between two polls of replicas and workers.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="The lowest level to log.")
    log_format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, else JSON.")

    @field_validator("queues")
    @classmethod
    def _known_queues(cls, value: str) -> str:
        named = [name for part in value.split(",") if (name := part.strip())]
        unknown = set(named) - {"cpu", "gpu"}
        if unknown:
            raise ValueError(f"there is no queue {', '.join(sorted(unknown))}; the queues are cpu and gpu")
        return ",".join(named)

    @field_validator("webhook_networks")
    @classmethod
    def _networks(cls, value: str) -> str:
        _parsed_networks(value)
        return value

    @field_validator("otlp_endpoint")
    @classmethod
    def _http(cls, value: str) -> str:
        """The error does not repeat the URL: it may contain a password."""
        if value and not OTLP.fullmatch(value):
            raise ValueError("it does not have the form http://host:port or https://host/path")
        return value

    @field_validator("base_folders")
    @classmethod
    def _absolute_folders(cls, value: str) -> str:
        for part in filter(None, value.split(":")):
            if not Path(part).is_absolute():
                raise ValueError(f"{part} is not an absolute path; write each folder from the root, as /data/birds")
        return value

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        """The error does not repeat the URL: it may contain a password."""
        if value and not _names_a_database(value):
            raise ValueError(
                "it has neither the form postgresql://user:password@host:port/name nor sqlite:///file; "
                "in a password, encode special characters, such as @ as %40"
            )
        return value

    @field_validator("broker_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        """Checked here, because the clients' own errors would repeat the URL and its password."""
        if value and not BROKER.fullmatch(value):
            raise ValueError(
                "it does not have the form redis://user:password@host:port/number (or rediss://…, with TLS); "
                "in a password, encode special characters, such as @ as %40"
            )
        return value

    @property
    def url(self) -> str:
        """The URL of the database, with the driver that this project is tested with."""
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
    def networks_of_webhooks(self) -> tuple[Network, ...]:
        return _parsed_networks(self.webhook_networks)

    @property
    def base_roots(self) -> tuple[Path, ...]:
        """The folders whose content a base session may be asked to learn."""
        return tuple(Path(part) for part in self.base_folders.split(":") if part)

    @property
    def own_worker(self) -> bool:
        return self.embedded if self.worker is None else self.worker

    @property
    def room(self) -> Path:
        """The folder on whose disk a base session puts images aside, in files without a name."""
        return self.scratch or self.home

    @property
    def prepared(self) -> Path:
        """The folder of compiled backbones."""
        return self.cache or self.home / "backbones"


def _parsed_networks(value: str) -> tuple[Network, ...]:
    return tuple(ip_network(name, strict=False) for part in value.split(",") if (name := part.strip()))


def _names_a_database(url: str) -> bool:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return False
    return parsed.drivername in POSTGRESQL or (parsed.drivername == "sqlite" and parsed.database not in MEMORY)
