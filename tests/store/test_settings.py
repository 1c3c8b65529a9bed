"""Settings come from the environment, and a wrong one is refused at once."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from store.settings import Settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(f"PROTOQUAD_{field.upper()}", raising=False)
    for other in ("PROTOQUAD_GUARD_PICTURES", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.chdir(tmp_path)


def test_without_any_setting_it_is_the_embedded_service(tmp_path: Path) -> None:
    """One file below the working folder, loopback alone."""
    settings = Settings()

    assert settings.url == f"sqlite:///{tmp_path / '.protoquad' / 'protoquad.db'}"
    assert settings.embedded
    assert settings.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgres://user:secret@host:5432/name", "postgresql+psycopg://user:secret@host:5432/name"),
        ("postgresql://host/name?sslmode=require", "postgresql+psycopg://host/name?sslmode=require"),
        ("postgresql+psycopg://host/name", "postgresql+psycopg://host/name"),
        ("postgresql://user:a://b@host/name", "postgresql+psycopg://user:a://b@host/name"),
    ],
)
def test_any_spelling_of_postgresql_uses_the_one_driver(given: str, used: str) -> None:
    """Hosters write `postgres://`, libraries `postgresql://`."""
    settings = Settings(database_url=given)

    assert settings.url == used
    assert not settings.embedded


def test_another_file_of_sqlite_is_taken_as_it_is() -> None:
    """Its URL already says everything."""
    settings = Settings(database_url="sqlite:////data/some.db")

    assert settings.url == "sqlite:////data/some.db"
    assert settings.embedded


def test_variables_of_the_environment_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By their prefix, as the type of the field."""
    for name, value in {"HOME": "elsewhere", "PORT": "0", "SESSION_DELAY": "0.5", "WORKER": "false"}.items():
        monkeypatch.setenv(f"PROTOQUAD_{name}", value)

    settings = Settings()

    assert settings.url == f"sqlite:///{tmp_path / 'elsewhere' / 'protoquad.db'}"
    assert (settings.port, settings.session_delay, settings.worker) == (0, 0.5, False)


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compose file passes on what is not set as an empty text."""
    monkeypatch.setenv("PROTOQUAD_PORT", "")

    assert Settings().port == 8000


def test_a_setting_can_still_be_given_by_its_old_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new name comes first, and an error names it whichever was used."""
    monkeypatch.setenv("PROTOQUAD_GUARD_PICTURES", "7")
    old = Settings().guard_images
    monkeypatch.setenv("PROTOQUAD_GUARD_IMAGES", "8")
    both = Settings().guard_images
    monkeypatch.setenv("PROTOQUAD_GUARD_IMAGES", "0")

    assert (old, both, Settings(guard_images=9).guard_images) == (7, 8, 9)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert refused.value.errors()[0]["loc"] == ("guard_images",)


def test_what_belongs_to_others_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an unprefixed variable nor an unknown one counts."""
    monkeypatch.setenv("PORT", "9")
    monkeypatch.setenv("PROTOQUAD_TEST_SOMETHING", "9")

    assert Settings().port == 8000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("PORT", "http"),
        ("MAX_IMAGES", "0"),
        ("MAX_SHOTS", "1.5"),
        ("SESSION_DELAY", "-1"),
        ("SESSION_PATIENCE", "inf"),
        ("LEASE_SECONDS", "0"),
        ("LEASE_SECONDS", "nan"),
        ("ATTEMPTS", "0"),
        ("KEEP_VERSIONS", "0"),
        ("WORKER", "perhaps"),
        ("ENGINE", "abacus"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "verse"),
        ("QUEUES", "cpu,tpu"),
        ("SESSION_QUEUE", "cpu,gpu"),
        ("STALL_SECONDS", "0"),
        ("BROKER_URL", "localhost:6379"),
        ("BROKER_URL", "amqp://localhost"),
        ("BROKER_URL", "redis://localhost:port"),
        ("BROKER_URL", "redis://localhost/jobs"),
    ],
)
def test_a_wrong_value_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """At the start, not when it is first used."""
    monkeypatch.setenv(f"PROTOQUAD_{name}", value)

    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


@pytest.mark.parametrize("name", [name for name in Settings.model_fields if name != "log_level"])
def test_every_setting_says_what_it_is_for(name: str) -> None:
    """The documentation is made of these sentences."""
    assert (Settings.model_fields[name].description or "").endswith(".")


# Redis


@pytest.mark.parametrize(
    ("queues", "device", "read"),
    [
        ("", "cpu", ("cpu",)),
        ("", "cuda", ("gpu", "cpu")),
        ("gpu", "cpu", ("gpu",)),
        ("cpu", "cuda", ("cpu",)),
        (" cpu, gpu ,", "cpu", ("cpu", "gpu")),
        (",", "cpu", ("cpu",)),
    ],
)
def test_a_worker_reads_the_queues_of_its_device_unless_told_otherwise(
    queues: str, device: str, read: tuple[str, ...]
) -> None:
    """One with CUDA takes what needs it first, then what any can do; none reads nothing."""
    assert Settings(queues=queues).queues_of(device) == read


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost:6379/0",
        "redis://:secret@redis:6379/",
        "rediss://user:p%40ss@10.0.0.1/15?ssl_cert_reqs=required",
        "redis://[::1]:6379/0",
    ],
)
def test_any_spelling_of_a_redis_is_taken_as_it_is(url: str) -> None:
    """With and without a user, a port, a number, TLS."""
    assert Settings(broker_url=url).broker_url == url


@pytest.mark.parametrize("url", ["redis://:s3/cret@host:6379", "redis://:s3#cret@host", "amqp://:s3cret@host"])
def test_a_broker_that_is_refused_is_not_quoted(url: str) -> None:
    """What is wrong with it may be its password."""
    with pytest.raises(ValidationError) as refused:
        Settings(broker_url=url)

    assert "s3" not in refused.value.errors()[0]["msg"]
    assert "cret" not in refused.value.errors()[0]["msg"]


def test_networks_of_webhooks_are_addresses_or_ranges() -> None:
    """In either family; a single address is a network of one."""
    networks = Settings(webhook_networks="10.0.0.1/8, 127.0.0.1,fd00::/8").networks_of_webhooks

    assert [str(network) for network in networks] == ["10.0.0.0/8", "127.0.0.1/32", "fd00::/8"]
    assert Settings().networks_of_webhooks == ()


@pytest.mark.parametrize("given", ["localhost", "10.0.0.0/99", "true"])
def test_a_network_that_is_none_is_refused(given: str) -> None:
    """A name could mean another address tomorrow."""
    with pytest.raises(ValidationError, match="webhook_networks"):
        Settings(webhook_networks=given)


@pytest.mark.parametrize("name", ["PROTOQUAD_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"])
def test_a_collector_is_set_by_our_name_or_by_that_of_opentelemetry(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The second is there already where others send traces too."""
    monkeypatch.setenv(name, "http://collector:4318")

    assert Settings().otlp_endpoint == "http://collector:4318"


@pytest.mark.parametrize("given", ["collector:4317", "grpc://secret@collector", "http://secret @collector"])
def test_a_collector_that_is_no_address_is_refused_without_repeating_it(given: str) -> None:
    """It may contain a password."""
    with pytest.raises(ValidationError) as refused:
        Settings(otlp_endpoint=given)

    assert given not in refused.value.errors()[0]["msg"]
