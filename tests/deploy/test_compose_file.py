"""The compose deployment as far as it can be read without Docker; `make compose-test` proves the rest."""

import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from store.api_keys import WHOLE

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
ENDS_BY_ITSELF = {"migrate", "cli"}  # whose exit code is their health


def make_env(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "deploy" / "make-env.sh", file], capture_output=True, text=True)


def made(file: Path) -> dict[str, str]:
    make_env(file).check_returncode()
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if line and line[0] != "#")


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_contained(name: str) -> None:
    """Nothing to write on, nothing to gain, and a bound to what it may take."""
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["deploy"]["resources"]["limits"].keys() >= {"memory", "pids"}
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - ENDS_BY_ITSELF))
def test_every_service_that_stays_is_watched_restarted_and_given_time_to_stop(name: str) -> None:
    """A health check each, and a restart whatever it died of."""
    service = SERVICES[name]

    assert service["healthcheck"]["test"]
    assert service["restart"] == "unless-stopped"
    assert service["stop_grace_period"]


def test_every_image_of_others_is_one_release() -> None:
    """Two builds a month apart are the same service; another release is a setting, not an accident."""
    images = {name: service["image"] for name, service in SERVICES.items() if "PROTOQUAD" not in service["image"]}
    named = re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", DOCKERFILE, re.MULTILINE)
    bases = {source for source in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) if source != "scratch"}

    assert images.keys() == {"postgres", "redis", "proxy"}
    for image in images.values():
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[a-z]+:\d+\.\d+(\.\d+)?-[a-z]+\}", image)
    assert [name for name, _ in named] == ["PYTHON_IMAGE"]
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+", named[0][1])
    assert bases == {"${PYTHON_IMAGE}", "dependencies"}


def test_what_ends_by_itself_has_no_health_of_the_image() -> None:
    """The image's health check is for what stays."""
    assert all(SERVICES[name]["healthcheck"] == {"disable": True} for name in ENDS_BY_ITSELF)
    assert re.search(r'^HEALTHCHECK .*CMD \["healthcheck"\]$', DOCKERFILE, re.MULTILINE)


def test_the_image_does_not_run_as_root() -> None:
    """The last user that is named is the one that everything runs as."""
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["protoquad"]


def test_no_secret_has_a_default() -> None:
    """What is not set is asked for by name, with the command that makes it."""
    asked = re.findall(r"\$\{(\w*(?:PASSWORD|KEY)\w*)(.*?)\}", COMPOSE)

    assert {name for name, _ in asked} == {"POSTGRES_PASSWORD", "REDIS_PASSWORD", "PROTOQUAD_KEY"}
    assert {otherwise for _, otherwise in asked} == {":?run make compose-env"}


def test_the_service_is_published_to_this_machine_alone_unless_told_otherwise() -> None:
    """And nothing but the proxy is published."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published == {"proxy": ["${PROTOQUAD_ADDRESS:-127.0.0.1}:${PROTOQUAD_PORT:-8000}:8000"]}


def test_the_secrets_are_random_and_their_owners_alone(tmp_path: Path) -> None:
    """Two deployments share none of them, and the key is one that the service takes."""
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    secrets = ["POSTGRES_PASSWORD", "REDIS_PASSWORD", "PROTOQUAD_KEY"]

    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600
    assert len({deployment[name] for deployment in (one, other) for name in secrets}) == 6
    assert WHOLE.fullmatch(one["PROTOQUAD_KEY"])
    assert all(re.fullmatch("[0-9a-f]{64}", one[name]) for name in secrets[:2])


def test_secrets_that_a_database_knows_are_not_written_over(tmp_path: Path) -> None:
    """They would lock everybody out."""
    before = made(tmp_path / "env")
    again = make_env(tmp_path / "env")

    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert before["POSTGRES_PASSWORD"] in (tmp_path / "env").read_text()
