"""The Helm chart: its values are those of its schema and of the service; where helm is found, it renders."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from protoquad.main import COMMANDS
from store.api_keys import WHOLE
from store.models import Base
from store.settings import Settings
from tests.docs.pages import blocks, section, text_of

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {file.name: file.read_text() for file in sorted((CHART / "templates").iterdir())}
EVERYTHING = "".join(TEMPLATES.values())
(DOCUMENTED,) = (
    yaml.safe_load(block) for block in blocks(section(text_of("docs/integrations.md"), "Kubernetes"), "yaml")
)
KEY = f"pq_{'0' * 8}_{'0' * 64}"
SECRETS = ("--set", f"secret.databaseUrl=postgresql://user:word@host/name,secret.key={KEY}")
HELM = shutil.which("helm")
with_helm = pytest.mark.skipif(HELM is None, reason="there is no helm on this machine")


def paths(tree: dict[str, Any], inside: str = "") -> set[str]:
    """Every value's name, with those that it is in."""
    found = set()
    for name, value in tree.items():
        found |= {f"{inside}{name}"} | (paths(value, f"{inside}{name}.") if isinstance(value, dict) else set())
    return found


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run([HELM, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)


def rendered(*arguments: str | Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Every object, by its kind and name."""
    done = helm("template", "protoquad", CHART, *arguments)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def containers(objects: dict[tuple[str, str], dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container with its pod."""
    pods = [one["spec"]["template"]["spec"] for (kind, _), one in objects.items() if kind == "Deployment"]
    return [(pod, container) for pod in pods for container in [*pod["initContainers"], *pod["containers"]]]


# Without helm


def test_the_values_are_those_of_the_schema() -> None:
    """All of them are described, and a name that is none is refused."""
    jsonschema_rs.validate(SCHEMA, VALUES)

    assert VALUES.keys() == SCHEMA["properties"].keys() - {"global"}
    for name, schema in SCHEMA["properties"].items():
        if "properties" in schema:
            assert VALUES[name].keys() == schema["properties"].keys()
    with pytest.raises(jsonschema_rs.ValidationError, match="replica"):
        jsonschema_rs.validate(SCHEMA, {**VALUES, "api": {**VALUES["api"], "replica": 3}})


def test_the_values_of_the_page_are_values() -> None:
    """They can be pasted."""
    jsonschema_rs.validate(SCHEMA, DOCUMENTED)

    assert paths(DOCUMENTED) - paths(VALUES) <= {
        *(f"settings.{name}" for name in DOCUMENTED["settings"]),
        *(f"ingress.annotations.{name}" for name in DOCUMENTED["ingress"]["annotations"]),
    }


def test_templates_and_values_name_each_other() -> None:
    """No template asks for a value that is not there, and no value is without effect."""
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", EVERYTHING))
    leaves = {path for path in paths(VALUES) if not any(other.startswith(f"{path}.") for other in paths(VALUES))}

    assert used - paths(VALUES) == set()
    assert {leaf for leaf in leaves if not any(leaf == path or leaf.startswith(f"{path}.") for path in used)} == set()


def test_the_settings_that_it_names_exist() -> None:
    """By their full names; the key is no setting."""
    named = set(re.findall(r"PROTOQUAD_([A-Z_]+)", EVERYTHING + (CHART / "values.yaml").read_text())) - {"KEY"}

    assert {name.lower() for name in named} - Settings.model_fields.keys() == set()
    assert {name.removeprefix("PROTOQUAD_").lower() for name in DOCUMENTED["settings"]} <= Settings.model_fields.keys()


def test_image_release_user_commands_and_routes_are_those_of_the_project() -> None:
    """What is renamed there is renamed here."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    commands = re.findall(r"args: \[([a-z]+)\]|\[protoquad, ([a-z-]+)\]|protoquad (keys) ensure", EVERYTHING)

    assert chart["appVersion"] == project["version"]
    assert f"docker build --tag {VALUES['image']['repository']} ." in dockerfile
    assert all(f"--uid {user} " in dockerfile for user in re.findall(r"runAsUser: (.+)", EVERYTHING))
    assert {name for found in commands for name in found if name} == {
        "migrate",
        "serve",
        "worker",
        "worker-alive",
        "keys",
    }
    assert {"migrate", "serve", "worker", "worker-alive", "keys"} <= COMMANDS.keys()
    assert set(re.findall(r"mountPath: (\S+?)}", EVERYTHING)) == {"/tmp", "/var/lib/protoquad", "/var/cache/protoquad"}


def test_keda_counts_rows_that_exist() -> None:
    """A table and a column that a migration could rename."""
    (query,) = re.findall(r'query: "(.+)"', EVERYTHING)

    assert query == "SELECT count(*) FROM sessions WHERE status IN ('queued', 'running')"
    assert "status" in Base.metadata.tables["sessions"].columns


def test_the_pattern_of_a_key_is_that_of_a_key() -> None:
    """A key that the schema lets through is one that the service takes."""
    pattern = SCHEMA["properties"]["secret"]["properties"]["key"]["pattern"]

    assert WHOLE.fullmatch(KEY)
    assert re.fullmatch(pattern, KEY)
    assert not re.fullmatch(pattern, KEY[:-1])


# With helm


@with_helm
def test_the_chart_passes_the_linter() -> None:
    """With the least that has to be set, and with the values of the page."""
    least = helm("lint", "--strict", CHART, *SECRETS)

    assert least.returncode == 0, least.stdout


@with_helm
def test_every_container_is_contained() -> None:
    """As in the compose file: no root, nothing to write on, nothing to gain, a bound; and no variables of Services."""
    objects = rendered(*SECRETS)

    found = containers(objects)
    assert [container["name"] for _, container in found] == ["migrate", "first-key", "api", "migrate", "worker"]
    for pod, container in found:
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}


@with_helm
def test_everything_that_can_be_turned_on_renders(tmp_path: Path) -> None:
    """The values of the page, and a policy for the network."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(DOCUMENTED))
    policy = ("--set", "networkPolicy.enabled=true,settings.PROTOQUAD_MAX_ZIP_BYTES=268435456")

    objects = rendered("--values", tmp_path / "values.yaml", *policy)

    kinds = {kind for kind, _ in objects}
    assert kinds >= {"ScaledObject", "TriggerAuthentication", "PersistentVolumeClaim", "Ingress", "PodDisruptionBudget"}
    assert ("Secret", "protoquad") not in objects
    assert "replicas" not in objects["Deployment", "protoquad-worker"]["spec"]
    assert [name for kind, name in objects if kind == "NetworkPolicy"] == ["protoquad-api", "protoquad-worker"]
    data = objects["ConfigMap", "protoquad"]["data"]
    assert (data["PROTOQUAD_PORT"], data["PROTOQUAD_MAX_ZIP_BYTES"]) == ("8000", "268435456")
    Settings(**{name.removeprefix("PROTOQUAD_").lower(): value for name, value in data.items()})


@with_helm
def test_what_has_to_be_set_is_asked_for() -> None:
    """By name, with how to make it."""
    without_database = helm("template", CHART, "--set", f"secret.key={KEY}")
    without_key = helm("template", CHART, *SECRETS, "--set", "secret.key=")

    assert "set secret.databaseUrl" in without_database.stderr
    assert "set secret.key to the first API key" in without_key.stderr
