"""The deployment under test: a compose project of its own, with its own secrets, port, volumes and image."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
SECONDS = 600  # a limit for everything that a busy machine can delay
LAST_LINES = 8  # of the output of a command that fails
SERVICES = ("postgres", "redis", "migrate", "api", "worker", "proxy")
REPLICAS = {"api": 3, "worker": 2}
PREDICT = """
import sys, urllib.request
key, _, body = sys.stdin.buffer.read().partition(b"\\n")
headers = {"Authorization": "Bearer " + key.decode(), "Content-Type": "application/json"}
print(urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8000/predict", body, headers)).read().decode())
"""


class Failed(Exception):
    """A step failed; the text says what was expected."""


class Stack:
    """`docker compose` as an administrator uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = f"protoquad-test-{secrets.token_hex(3)}"
        self.image = f"{self.project}:first"
        self.port = _free_port()
        run(str(ROOT / "deploy" / "make-env.sh"), str(folder / ".env"))
        made = dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines() if "=" in line)
        self.key = made["PROTOQUAD_KEY"]
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers={"Authorization": f"Bearer {self.key}"}, timeout=SECONDS
        )

    def compose(self, *arguments: str, env_file: Path | None = None) -> str:
        return run("docker", "compose", *self._options(env_file), *arguments, environment=self._settings())

    def roll(self) -> None:
        run(str(ROOT / "deploy" / "roll.sh"), *self._options(), environment=self._settings())

    def up(self) -> None:
        scale = [part for service, number in REPLICAS.items() for part in ("--scale", f"{service}={number}")]
        self.compose("up", "--detach", "--wait", "--quiet-pull", *scale)

    def containers(self, service: str) -> list[str]:
        return sorted(self.compose("ps", "--all", "--format", "{{.Name}}", service).split())

    def kill(self, container: str) -> None:
        run("docker", "kill", container)

    def start(self, container: str) -> None:
        run("docker", "start", container)
        self.wait_until_healthy(container)

    def wait_until_healthy(self, container: str) -> None:
        eventually(lambda: inspect(container)["State"]["Health"]["Status"] == "healthy", f"{container} is healthy")

    def predict_on(self, container: str, body: str) -> list[dict[str, Any]]:
        """The answer of this replica, not through the proxy."""
        output = run("docker", "exec", "--interactive", container, "python", "-c", PREDICT, stdin=f"{self.key}\n{body}")
        predictions: list[dict[str, Any]] = json.loads(output)["predictions"]
        return predictions

    def remove(self) -> None:
        self.client.close()
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")
        images = run("docker", "images", "--format", "{{.Repository}}:{{.Tag}}", self.project).split()
        if images:
            run("docker", "rmi", "--force", *images)

    def _options(self, env_file: Path | None = None) -> list[str]:
        chosen = {
            "--ansi": "never",
            "--file": str(ROOT / "docker-compose.yml"),
            "--env-file": str(env_file or self.folder / ".env"),
            "--project-name": self.project,
        }
        return [part for option in chosen.items() for part in option]

    def _settings(self) -> dict[str, str]:
        """Without settings of a service that this machine may run."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PROTOQUAD_")}
        chosen = {"PROTOQUAD_IMAGE": self.image, "PROTOQUAD_PORT": str(self.port), "PROTOQUAD_WHEELS": _wheels()}
        return {**_index(), **kept, **{name: value for name, value in chosen.items() if value}}


def run(*command: str, environment: dict[str, str] | None = None, stdin: str | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, input=stdin)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
        raise Failed(f"`{' '.join(command)}` ended with {done.returncode}:\n{last}")
    return done.stdout


def inspect(container: str) -> dict[str, Any]:
    (found,) = json.loads(run("docker", "inspect", container))
    return dict(found)


def eventually(look: Callable[[], Any], wanted: str, seconds: float = SECONDS) -> Any:
    """Wait until `look` returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.5)
    raise Failed(f"after {seconds:.0f} s it is still not true that {wanted}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wheels() -> str:
    """The folder of wheels that pip on this machine uses, so that the build uses it too."""
    folder = os.environ.get("PROTOQUAD_WHEELS") or _pip("global.find-links")
    return folder if Path(folder).is_dir() else ""


def _index() -> dict[str, str]:
    url = _pip("global.index-url")
    return {"PIP_INDEX_URL": url} if url else {}


def _pip(setting: str) -> str:
    done = subprocess.run([sys.executable, "-m", "pip", "config", "get", setting], capture_output=True, text=True)
    return done.stdout.strip()
