"""What the page on integrations shows of edge graphs and of the inference protocol works as it stands there."""

import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch
import typer
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from core.torchvision_ops import make_torchvision_importable
from migrations import schema
from protoquad.export_edge_command import export_edge
from store.database import Database
from tests.docs.pages import REPOSITORY, blocks, section, shell_lines, text_of
from tests.service.conftest import Service, running_service

make_torchvision_importable()
import timm  # noqa: E402

PAGE = text_of("docs/integrations.md")
EDGE, PROTOCOL = section(PAGE, "Take the model away"), section(PAGE, "Open Inference Protocol")
SAMPLES = REPOSITORY / "console" / "static" / "samples"
NETWORK = "test_vit"  # small, and a kind that no other test of edge graphs has
ADDRESS = "127.0.0.1:8000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the sample images, and forms of one that callers get wrong: turned by EXIF, and large."""
    found: Path = tmp_path_factory.mktemp("samples")
    for path in SAMPLES.glob("*.jpg"):
        shutil.copy(path, found)
    mug = Image.open(SAMPLES / "new-mug.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    mug.rotate(90, expand=True).resize((1300, 1700)).save(found / "turned.jpg", exif=exif)
    mug.resize((1501, 1103)).save(found / "large.png")
    return found


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random ones, in files."""
    found: Path = tmp_path_factory.mktemp("weights")
    with torch.random.fork_rng():
        torch.manual_seed(4)
        save_file(timm.create_model(NETWORK).state_dict(), found / f"timm:{NETWORK}.safetensors")
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, weights: Path) -> Iterator[Service]:
    """With the three classes of the README."""
    home = tmp_path_factory.mktemp("home")
    with closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as database:
        schema.upgrade(database)
        with running_service(database, home, backbone=f"timm:{NETWORK}", weights=weights) as running:
            for name in ("fish", "house", "mug"):
                shots = [("shots", path.read_bytes()) for path in sorted((SAMPLES / name).glob("*.jpg"))]
                taught = running.http.post("/classes", data={"name": name}, files=shots)
                assert taught.status_code == 202, taught.text
            yield running


@pytest.fixture(scope="module")
def exported(service: Service, folder: Path, weights: Path) -> str:
    """What the commands of the page print, one after another in that folder."""
    printed, logs, handlers = "", structlog.get_config(), logging.getLogger().handlers
    chosen = {"ENGINE": "torch", "HOME": str(service.settings.home), "WEIGHTS": str(weights)}
    with pytest.MonkeyPatch.context() as environment:
        environment.chdir(folder)
        for name, value in chosen.items():
            environment.setenv(f"PROTOQUAD_{name}", value)
        for line in shell_lines(EDGE):
            printed += _run(line)
    structlog.configure(**logs)
    logging.getLogger().handlers = handlers
    return printed


def _run(line: str) -> str:
    app = typer.Typer()
    app.command()(export_edge)
    program, command, *arguments = shlex.split(line)
    assert (program, command) == ("protoquad", "export-edge")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def executed(example: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["example.py", *arguments])
    exec(compile(example, "docs/integrations.md", "exec"), {"__name__": "example"})


def predictions(service: Service, folder: Path, names: list[str]) -> list[Any]:
    files = [("images", (folder / name).read_bytes()) for name in names]
    found: list[Any] = service.http.post("/predict", files=files).json()["predictions"]
    return found


def test_the_commands_print_what_the_page_shows(exported: str) -> None:
    """But for the numbers."""
    (shown,) = blocks(EDGE, "text")

    form = re.sub(r"\\?[\d.]+", r"[\\d.]+", re.escape(shown.strip()).replace(r"\ ", r"\s+").replace("\\\n", r"\s+"))
    assert re.search(form, exported), exported


@pytest.mark.usefixtures("exported")
def test_the_graph_answers_as_the_service_in_twenty_lines(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Photographs as they are, one that EXIF turns, and one of more than a megapixel."""
    example, _ = blocks(EDGE, "python")
    files = ["new-fish.jpg", "new-house.jpg", "new-mug.jpg", "new-umbrella.jpg", "turned.jpg", "large.png"]

    executed(example, folder, monkeypatch, *files)

    printed = re.findall(
        r"^(\S+): (\w+), confidence ([\d.]+), distance ([\d.]+)$", capsys.readouterr().out, re.MULTILINE
    )
    expected = predictions(service, folder, files)
    assert len([line for line in example.splitlines() if line]) <= 20
    assert [name for name, *_ in printed] == files
    assert [label for _, label, *_ in printed] == [found["label"] or "unknown" for found in expected]
    for (*_, confidence, distance), found in zip(printed, expected, strict=True):
        assert float(distance) == pytest.approx(found["top"][0]["distance"], abs=0.0016)
        assert float(confidence) == pytest.approx(found["confidence"], abs=0.01)


@pytest.mark.usefixtures("exported")
def test_openvino_names_the_class(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the runtime information of its file."""
    _, example = blocks(EDGE, "python")

    executed(example, folder, monkeypatch)

    printed = capsys.readouterr().out
    (found,) = predictions(service, folder, ["new-mug.jpg"])
    assert printed.strip() == (found["label"] or "unknown")


def test_tritons_client_is_shown_as_it_works(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two images, a line for each."""
    (example,) = blocks(PROTOCOL, "python")

    executed(example.replace(ADDRESS, service.url.removeprefix("http://")), folder, monkeypatch)

    printed = re.findall(r"^(\S+\.jpg) (\w+) [\d.]+$", capsys.readouterr().out, re.MULTILINE)
    files = ["new-mug.jpg", "new-umbrella.jpg"]
    labels = [found["label"] or "unknown" for found in predictions(service, folder, files)]
    assert printed == list(zip(files, labels, strict=True))


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page shows curl")
def test_the_protocol_is_spoken_with_curl(service: Service, folder: Path) -> None:
    """The answer has the form that the page shows."""
    (line,) = shell_lines(PROTOCOL)
    (shown,) = (json.loads(block) for block in blocks(PROTOCOL, "json"))
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}

    script = ["bash", "-euc", line.replace(f"http://{ADDRESS}", service.url)]
    done = subprocess.run(script, cwd=folder, env=environment, capture_output=True, check=True)

    answer = json.loads(done.stdout)
    assert list(answer) == list(shown)
    forms = [[(one["name"], one["datatype"], one["shape"]) for one in found["outputs"]] for found in (answer, shown)]
    assert forms[0] == forms[1]
