"""The page for operators names only what exists, and all that it must."""

import re
from pathlib import Path

import yaml

from protoquad.main import COMMANDS
from service.metrics import Metrics
from store.database import Database
from store.models import Base
from store.settings import Settings
from tests.deploy.page import PAGE, REPOSITORY

NOT_SETTINGS = {"PROTOQUAD_KEY"}  # read by one command alone


def test_every_setting_that_it_names_exists() -> None:
    """And the defaults that it tells are those."""
    fields = Settings.model_fields
    named = set(re.findall(r"PROTOQUAD_[A-Z_]+", PAGE)) - NOT_SETTINGS
    told = re.findall(r"^\| `PROTOQUAD_([A-Z_]+)` \(([\d.]+)\)", PAGE, re.MULTILINE)

    assert {name.removeprefix("PROTOQUAD_").lower() for name in named} <= set(fields)
    assert told
    assert {name: float(value) for name, value in told} == {name: fields[name.lower()].default for name, _ in told}


def test_every_command_that_it_names_exists() -> None:
    """With the help that `protoquad` itself gives."""
    named = set(re.findall(r"\bprotoquad ([a-z][a-z-]+)", "\n".join(re.findall(r"`+[^`]+`+", PAGE))))

    assert {"serve", "worker", "migrate", "backup", "keys", "worker-alive"} <= named <= {*COMMANDS, "bench"}


def test_every_metric_is_in_its_table(tmp_path: Path) -> None:
    """Those of the service itself, and no other."""
    database = Database(f"sqlite:///{tmp_path}/empty.db")
    Base.metadata.create_all(database.engine)
    families = [family for family in Metrics(database).registry.collect() if family.name.startswith("protoquad_")]
    database.close()
    measured = {family.name + "_total" * (family.type == "counter") for family in families}

    assert measured == set(re.findall(r"^\| `(protoquad_\w+)` \|", PAGE, re.MULTILINE))


def test_what_it_shows_of_prometheus_can_be_read() -> None:
    """It scrapes under the name that the alerts expect and loads the file that there is."""
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    configuration = yaml.safe_load(shown)

    assert [job["job_name"] for job in configuration["scrape_configs"]] == ["protoquad"]
    assert all((REPOSITORY / "deploy" / name).exists() for name in configuration["rule_files"])


def test_events_that_it_quotes_are_logged() -> None:
    """Word for word, so that a search finds them."""
    table = PAGE.split("## Logs", 1)[1].split("## Tuning", 1)[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| `")]
    quoted = {event for row in rows for event in re.findall("`([^`]+)`", row)}
    source = "".join(
        path.read_text()
        for package in ("engine", "learners", "service", "workers")
        for path in (REPOSITORY / package).rglob("*.py")
    )

    assert len(quoted) >= 8
    assert [event for event in quoted if f'"{event}"' not in source] == []
