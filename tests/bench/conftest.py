"""A tiny stream and a tiny network: everything the benchmark does, in seconds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bench.datasets import DatasetImage, Session, Stream, load, shapes
from bench.fscil import RunContext
from bench.methods import Setup
from bench.run_folder import Record
from core import backbones
from core.backbones import Backbone, resnet
from core.backbones.resnet import CifarResNet
from core.base_session import BaseConfig
from core.incremental_session import IncrementalConfig
from core.progress import Progress, Report


class RecordingDisplay:
    """Records the calls instead of showing a bar."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, int]] = []
        self.steps: list[Progress] = []
        self.sessions: list[int] = []

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        done: list[int] = []
        yield done.append
        assert sum(done) == total
        self.counted.append((what, total))

    @contextmanager
    def training(self, what: str) -> Iterator[Report]:
        del what
        yield self.steps.append

    def finished(self, session: int, accuracy: float, record: Record) -> None:
        del accuracy, record
        self.sessions.append(session)


def small_network() -> Backbone:
    """ResNet-32 with one block in each stage instead of five; random weights."""
    with pytest.MonkeyPatch.context() as patch:
        _make_small(patch)
        return backbones.build("resnet32")


def _make_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resnet, "CifarResNet", lambda blocks: CifarResNet(min(blocks, 1)))


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """All classes and sessions of the drawn shapes, but few images: eight to learn a class from, three to test it."""
    monkeypatch.setattr(shapes, "TRAIN", 8)
    monkeypatch.setattr(shapes, "TEST", 3)


@pytest.fixture(scope="session")
def stream() -> Stream:
    """Four base classes and two sessions of two, of the drawn shapes; each image is drawn once."""
    whole = load("shapes")
    base_ids = whole.base.class_ids[:4]

    def drawn(image: DatasetImage) -> DatasetImage:
        return DatasetImage(image.key, image.class_id, partial(bytes, image.read()))

    def cut(session: Session, class_ids: tuple[int, ...], train: int, test: int) -> Session:
        def of(images: tuple[DatasetImage, ...], most: int) -> tuple[DatasetImage, ...]:
            return tuple(drawn(p) for c in class_ids for p in [q for q in images if q.class_id == c][:most])

        return Session(of(session.train, train), of(session.test, test))

    base = cut(whole.base, base_ids, 8, 4)
    later = [cut(session, session.class_ids[:2], 5, 4) for session in whole.sessions[1:3]]
    return Stream("shapes", whole.class_names, (base, *later))


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    torch.manual_seed(0)
    network = small_network()
    # On torch: for so few images compiling would take longer than all the rest.
    return RunContext(network, tmp_path / "cache", "shapes", torch.device("cpu"), RecordingDisplay(), engine="torch")


@pytest.fixture
def setup() -> Setup:
    """Two epochs on the tail of a small network: enough to go through every step."""
    base = replace(BaseConfig(), epochs=2, batch=8, scope="tail")
    incremental = replace(IncrementalConfig(), epochs=1, episodes=2, scope="tail", search=False)
    return Setup(base=base, incremental=incremental, views=2)


@pytest.fixture
def resnet32_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local weight file, so that ResNet-32 counts as pretrained; in this process it has one block in each stage."""
    _make_small(monkeypatch)
    torch.manual_seed(0)
    file = tmp_path / "resnet32.safetensors"
    save_file(CifarResNet(blocks=1).state_dict(), file)
    return file
