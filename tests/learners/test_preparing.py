"""Backbones are prepared once, whoever asks and however often, and nothing broken is ever served."""

import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from core import backbones
from core.backbones import as_it_comes
from core.errors import BackboneError, UnknownBackbone
from core.kit import MANIFEST, Kit
from learners import preparing
from learners.networks import Networks
from learners.preparing import prepared

NAME = "resnet32"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backbones")
    prepared(NAME, folder)
    return folder


@pytest.fixture
def made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backbones that were made, not read; in a moment, from what a process of its own has made before."""
    names: list[str] = []
    before = folder_in(cache)

    def make(name: str, folder: Path) -> None:
        names.append(name)
        time.sleep(0.2)
        shutil.copytree(before, folder, dirs_exist_ok=True)

    monkeypatch.setattr(preparing, "_make", make)
    return names


def folder_in(cache: Path) -> Path:
    (found,) = [entry for entry in cache.iterdir() if entry.is_dir()]
    return found


def answers(kit: Kit) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    side = kit.framing.size
    pictures = torch.randint(0, 256, (4, 3, side, side), dtype=torch.uint8, generator=generator)
    return kit.tail({})(kit.trunk({})(pictures))


def test_what_is_there_is_read(cache: Path, made: list[str]) -> None:
    assert answers(prepared(NAME, cache)).shape == (4, as_it_comes(NAME).dim)
    assert not made


def test_it_answers_as_this_process_would(cache: Path) -> None:
    """Also of a backbone without pretrained weights, whose first ones are drawn: every process draws the same."""
    found, expected = answers(prepared(NAME, cache)), answers(Kit.of(as_it_comes(NAME), torch.device("cpu")))
    assert (found - expected).norm() < 1e-4 * expected.norm()


def test_many_at_once_make_one(tmp_path: Path, made: list[str]) -> None:
    with ThreadPoolExecutor(3) as pool:
        kits = list(pool.map(lambda _: prepared(NAME, tmp_path), range(3)))

    assert made == [NAME]
    assert all(torch.equal(answers(kit), answers(kits[0])) for kit in kits)
    assert {entry.suffix for entry in tmp_path.iterdir()} == {"", ".lock"}, "nothing unfinished is left"


def test_a_broken_one_is_made_anew(cache: Path, tmp_path: Path, made: list[str]) -> None:
    expected = answers(prepared(NAME, cache))
    broken = tmp_path / folder_in(cache).name
    broken.mkdir()
    for file in folder_in(cache).iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "weights.safetensors").write_bytes(b"cut short")

    assert torch.equal(answers(prepared(NAME, tmp_path)), expected)
    assert made == [NAME]
    assert torch.equal(answers(Kit.read(broken)), expected)


def test_a_process_killed_while_it_prepares_leaves_nothing_to_stumble_over(tmp_path: Path, made: list[str]) -> None:
    imports = "from pathlib import Path; from learners.preparing import prepared"
    ask = f"{imports}; prepared({NAME!r}, Path({str(tmp_path)!r}))"
    process = subprocess.Popen([sys.executable, "-c", ask], start_new_session=True, stdout=subprocess.DEVNULL)
    killer = threading.Timer(30, process.kill)
    killer.start()
    while not [entry for entry in tmp_path.iterdir() if entry.is_dir()]:
        assert process.poll() is None
    os.killpg(process.pid, 9)
    process.wait()
    killer.cancel()
    assert not list(tmp_path.glob(f"*/{MANIFEST}"))

    assert answers(prepared(NAME, tmp_path)).isfinite().all()
    assert made == [NAME]
    assert folder_in(tmp_path).name == preparing._key(NAME), "what the other left is gone"


def test_a_cache_that_cannot_be_written_keeps_nobody_from_serving(tmp_path: Path, cache: Path, made: list[str]) -> None:
    (tmp_path / "file").touch()

    assert torch.equal(answers(prepared(NAME, tmp_path / "file" / "cache")), answers(prepared(NAME, cache)))
    assert made == [NAME]


def test_another_release_prepares_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = preparing._key(NAME)
    monkeypatch.setattr(preparing.metadata, "version", lambda package: f"{package} 99")
    assert preparing._key(NAME) != before


def test_an_unknown_backbone_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnknownBackbone, match="there is no backbone 'abacus'"):
        prepared("abacus", tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_built_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The process that prepares hands on why."""
    with pytest.raises(BackboneError, match="abacus"):
        prepared("timm:abacus", tmp_path)
    assert not [entry for entry in tmp_path.iterdir() if entry.is_dir()]


def test_who_serves_builds_no_backbone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules would cost more memory than everything that serving needs of it."""
    monkeypatch.setattr(backbones, "build", lambda name: pytest.fail(f"{name} was built"))
    networks = Networks(torch.device("cpu"), "auto", cache)
    assert networks.kit(NAME) is networks.kit(NAME)
