"""What the page of integrations shows can be pasted: data that is brought in ends up as classes."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from safetensors.torch import save_file
from typer.testing import CliRunner

from core.backbones.resnet import CifarResNet
from core.torchvision_ops import make_torchvision_importable
from learners.base_folder import read_folder
from migrations import schema
from protoquad.base_command import base
from protoquad.folders_command import folders
from store.database import Database
from tests.docs.pages import REPOSITORY, blocks, section, text_of
from tests.painted import picture
from tests.service.conftest import Service, running_service

PAGE = section(text_of("docs/integrations.md"), "Bring your data")
FOLDERS, CLASSES, HUGGING_FACE = blocks(PAGE, "sh")
ADDRESS = "http://127.0.0.1:8000"
SAMPLES = REPOSITORY / "console" / "static" / "samples"
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the page shows curl")

commands = typer.Typer()
commands.command("base")(base)
commands.command("folders")(folders)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody has a folder `things` of two classes."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("fish", "house"):
        (folder / "things" / name).mkdir(parents=True)
        for number in (1, 2, 3):
            shutil.copyfile(SAMPLES / name / f"{number}.jpg", folder / "things" / name / f"{number}.jpg")
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """In this process, with the commands beside it; of a network with weights only the tail is trained."""
    home, weights = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("weights")
    save_file(CifarResNet(blocks=5).state_dict(), weights / "resnet32.safetensors")
    chosen = {"HOME": home, "WEIGHTS": weights, "BACKBONE": "resnet32", "ENGINE": "torch"}
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in chosen.items():
            environment.setenv(f"PROTOQUAD_{name}", str(value))
        torch.set_num_threads(1)
        stack.callback(torch.set_num_threads, threads)
        database = stack.enter_context(closing(Database(f"sqlite:///{home / 'protoquad.db'}")))
        schema.upgrade(database)
        yield stack.enter_context(running_service(database, home))


@pytest.fixture(scope="module")
def shell(service: Service, folder: Path) -> Callable[[str], str]:
    """Runs lines as somebody on the service's machine does, each `protoquad` in this process."""

    def run(script: str) -> str:
        if script.startswith("protoquad "):
            with pytest.MonkeyPatch.context() as here:
                here.chdir(folder)
                done = CliRunner().invoke(commands, script.partition("  #")[0].split()[1:])
            assert done.exit_code == 0, done.output
            return done.stdout
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        lines = ["bash", "-euc", script.replace(ADDRESS, service.url)]
        finished = subprocess.run(lines, env=environment, cwd=folder, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run


def names(service: Service, model: str) -> set[str]:
    return {found["name"] for found in service.http.get(f"/models/{model}/classes").json()["items"]}


def test_a_folder_becomes_a_model_by_command_and_over_http(service: Service, shell: Callable[[str], str]) -> None:
    """Both know its classes; the second one when a worker has run its session."""
    printed = [shell(line) for line in FOLDERS.splitlines()]
    learner = service.learner("sent")
    (session,) = learner.get("/sessions")["items"]
    assert service.worker.run_next(session["id"])

    assert "version 1 of model 'things': 2 classes from 6 images" in printed[0]
    assert (session["kind"], learner.get(f"/sessions/{session['id']}")["status"]) == ("base", "succeeded")
    assert names(service, "things") == names(service, "sent") == {"fish", "house"}


def test_folders_are_taught_as_classes(service: Service, shell: Callable[[str], str]) -> None:
    """Each with its images."""
    shell(CLASSES)

    taught = service.learner().classes()
    assert {name: found["shots"] for name, found in taught.items()} == {"fish": 3, "house": 3}


def test_a_hugging_face_dataset_becomes_a_model(service: Service, shell: Callable[[str], str], folder: Path) -> None:
    """One that was saved to a disk; no internet is needed."""
    datasets: Any = pytest.importorskip("datasets", reason="Hugging Face's library is optional")
    datasets.disable_progress_bars()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["rose", "tulip"])})
    rows = {
        "image": [{"bytes": picture(str(number % 2), number), "path": None} for number in range(6)],
        "label": [number % 2 for number in range(6)],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder / "saved_dataset"))

    printed = [shell(line) for line in HUGGING_FACE.splitlines()]

    assert printed[0] == "6 images of 2 classes in flowers\n"
    assert names(service, "flowers") == {"rose", "tulip"}


def test_a_torchvision_dataset_becomes_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the page, as they are."""
    (example,) = blocks(PAGE, "python")
    monkeypatch.chdir(tmp_path)
    make_torchvision_importable()  # where its compiled part does not fit to torch

    exec(compile(example, "docs/integrations.md", "exec"), {"__name__": "example"})

    found = read_folder(tmp_path / "pictures")
    assert {folder.name for folder in found} <= {"class 0", "class 1", "class 2"}
    assert sum(len(folder.files) for folder in found) == 12
