"""Backbones are prepared once, whoever asks and however often, and nothing broken is ever served."""

import fcntl
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch

from core import backbones
from core.errors import BackboneError, UnknownBackbone
from engine import preparation
from engine.backbone_cache import BackboneCache
from engine.compiled_backbone import MANIFEST, CompiledBackbone
from engine.preparation import TimeLimit, prepare
from engine.pretrained import as_it_comes
from engine.single_flight import Busy
from tests.slow_preparing import SlowCommand, runs
from tests.waiting import until

NAME = "resnet32"


@pytest.fixture(scope="module")
def cache(prepared_resnet32: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with one backbone."""
    folder = tmp_path_factory.mktemp("backbones")
    shutil.copytree(prepared_resnet32, folder / prepared_resnet32.name)
    return folder


@pytest.fixture
def made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backbones that were made, not read; in a moment, from what a process of its own has made before."""
    names: list[str] = []
    before = folder_in(cache)

    def make(name: str, folder: Path, _: TimeLimit, __: Path | None) -> None:
        names.append(name)
        time.sleep(0.2)
        shutil.copytree(before, folder, dirs_exist_ok=True)

    monkeypatch.setattr(preparation, "_compile_in_process", make)
    return names


def folder_in(cache: Path) -> Path:
    (found,) = [entry for entry in cache.iterdir() if entry.is_dir()]
    return found


def answers(one: CompiledBackbone) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    side = one.framing.size
    pictures = torch.randint(0, 256, (4, 3, side, side), dtype=torch.uint8, generator=generator)
    return one.tail({})(one.trunk({})(pictures))


def test_what_is_there_is_read(cache: Path, made: list[str]) -> None:
    assert answers(prepare(NAME, cache)).shape == (4, as_it_comes(NAME).dim)
    assert not made


def test_it_answers_as_this_process_would(cache: Path) -> None:
    """Also of a backbone without pretrained weights, whose first ones are drawn: every process draws the same."""
    found, expected = (
        answers(prepare(NAME, cache)),
        answers(CompiledBackbone.on_torch(as_it_comes(NAME), torch.device("cpu"))),
    )
    assert (found - expected).norm() < 1e-4 * expected.norm()


def test_many_at_once_make_one(tmp_path: Path, made: list[str]) -> None:
    with ThreadPoolExecutor(3) as pool:
        compiled = list(pool.map(lambda _: prepare(NAME, tmp_path), range(3)))

    assert made == [NAME]
    assert all(torch.equal(answers(one), answers(compiled[0])) for one in compiled)
    assert {entry.suffix for entry in tmp_path.iterdir()} == {"", ".lock"}, "nothing unfinished is left"


def test_a_broken_one_is_made_anew(cache: Path, tmp_path: Path, made: list[str]) -> None:
    expected = answers(prepare(NAME, cache))
    broken = tmp_path / folder_in(cache).name
    broken.mkdir()
    for file in folder_in(cache).iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "weights.safetensors").write_bytes(b"cut short")

    assert torch.equal(answers(prepare(NAME, tmp_path)), expected)
    assert made == [NAME]
    assert torch.equal(answers(CompiledBackbone.read(broken)), expected)


def test_a_process_killed_while_it_prepares_leaves_nothing_to_stumble_over(tmp_path: Path, made: list[str]) -> None:
    """Even by SIGKILL, which leaves it no time to do anything: what it had started ends too."""
    imports = "from pathlib import Path; from engine.preparation import prepare"
    ask = f"{imports}; prepare({NAME!r}, Path({str(tmp_path)!r}))"
    process = subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.DEVNULL)
    until(lambda: psutil.Process(process.pid).children(), "a process prepares a backbone")
    (child,) = psutil.Process(process.pid).children()

    process.kill()
    process.wait()

    until(lambda: not runs(child.pid), "it is gone too")
    assert [entry for entry in tmp_path.iterdir() if entry.is_dir()], "it was killed in the middle"
    assert not list(tmp_path.rglob(MANIFEST)), "it was killed before it was done"
    assert answers(prepare(NAME, tmp_path)).isfinite().all()
    assert made == [NAME]
    assert folder_in(tmp_path).name == preparation._key(NAME), "what the other left is gone"


def test_a_cache_that_cannot_be_written_keeps_nobody_from_serving(tmp_path: Path, cache: Path, made: list[str]) -> None:
    (tmp_path / "file").touch()

    assert torch.equal(answers(prepare(NAME, tmp_path / "file" / "cache")), answers(prepare(NAME, cache)))
    assert made == [NAME]


def test_another_release_prepares_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = preparation._key(NAME)
    monkeypatch.setattr(preparation.metadata, "version", lambda package: f"{package} 99")
    assert preparation._key(NAME) != before


def test_an_unknown_backbone_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnknownBackbone, match="there is no backbone 'abacus'"):
        prepare("abacus", tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_built_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The process that prepares hands on why."""
    with pytest.raises(BackboneError, match="abacus"):
        prepare("timm:abacus", tmp_path)
    assert not [entry for entry in tmp_path.iterdir() if entry.is_dir()]


def test_who_serves_builds_no_backbone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules would cost more memory than everything that serving needs of it."""
    monkeypatch.setattr(backbones, "build", lambda name, *_: pytest.fail(f"{name} was built"))
    networks = BackboneCache(torch.device("cpu"), "auto", cache)
    assert networks.compiled(NAME) is networks.compiled(NAME)


# Preparing that takes long


@pytest.fixture
def slow(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowCommand:
    notes = tmp_path / "notes"
    notes.mkdir()
    return SlowCommand(notes, folder_in(cache), monkeypatch)


def on_openvino(cache: Path, seconds: float = 600.0, failure_seconds: float = 60.0) -> BackboneCache:
    return BackboneCache(torch.device("cpu"), "openvino", cache, seconds, failure_seconds)


def test_after_the_time_limit_the_process_and_its_children_are_killed(tmp_path: Path, slow: SlowCommand) -> None:
    """The error says how long it took and which setting to raise; nothing unfinished is left."""
    with pytest.raises(BackboneError, match=r"longer than 1.5 seconds .* PROTOQUAD_PREPARE_SECONDS"):
        prepare("timm:endless", tmp_path / "cache", seconds=1.5)

    slow.wait_until_gone()
    assert len(slow.started) == 1
    assert {entry.suffix for entry in (tmp_path / "cache").iterdir()} == {".lock"}


def test_closing_kills_the_process_and_its_children(tmp_path: Path, slow: SlowCommand) -> None:
    """As a service does when it stops: who waits is told at once."""
    own = on_openvino(tmp_path / "cache")
    waiting = own.load("timm:endless")
    slow.wait_until_started()

    own.close()

    with pytest.raises(Busy, match="stopping"):
        waiting.result(30)
    slow.wait_until_gone()


def test_a_lock_that_another_process_keeps_is_waited_for_only_so_long(tmp_path: Path, slow: SlowCommand) -> None:
    """It may have been stopped in the middle: the error names what it was about."""
    with (tmp_path / f"{preparation._key('timm:endless')}.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BackboneError, match=r"waiting for another process .* longer than 0.2 seconds"):
            prepare("timm:endless", tmp_path, seconds=0.2)

    assert not slow.started


def test_callers_of_one_backbone_wait_for_one_process(tmp_path: Path, slow: SlowCommand) -> None:
    own = on_openvino(tmp_path / "cache")
    with ThreadPoolExecutor(20) as pool:
        compiled = [pool.submit(own.compiled, "timm:slow") for _ in range(20)]
        slow.wait_until_started()
        slow.end()

    assert len({one.result() for one in compiled}) == 1
    assert len(slow.started) == 1


def test_while_one_is_prepared_others_that_are_ready_are_read_and_no_second_is_prepared(
    cache: Path, tmp_path: Path, slow: SlowCommand
) -> None:
    """Whoever wants a third one prepared is told to come back; whoever will not wait is told the same."""
    shutil.copytree(cache, tmp_path / "cache")
    own = on_openvino(tmp_path / "cache")
    waiting = own.load("timm:slow")
    slow.wait_until_started()

    assert own.compiled(NAME, seconds=60) is own.compiled(NAME)
    with pytest.raises(Busy, match="one at a time") as refused:
        own.compiled("timm:another")
    with pytest.raises(Busy, match="timm:slow is being prepared"):
        own.compiled("timm:slow", seconds=0.01)
    assert refused.value.retry_seconds > 0
    assert not waiting.done()
    slow.end()
    assert waiting.result(60) is own.compiled("timm:slow")
    assert [name for name, *_ in slow.started] == ["timm:slow"]


def test_what_failed_is_not_tried_again_at_once(tmp_path: Path, slow: SlowCommand) -> None:
    """The same reason is given without another process; once it is old, it is tried again."""
    slow.end("fail")
    for seconds, processes in ((60.0, 1), (0.0, 4)):
        own = on_openvino(tmp_path / "cache", failure_seconds=seconds)
        for _ in range(3):
            with pytest.raises(BackboneError, match="there is a reason"):
                own.compiled("timm:broken")

        assert len(slow.started) == processes


def test_a_process_that_crashes_is_told_without_its_insides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, object]]
) -> None:
    """The log has what it said last; who asked is told where to look."""
    monkeypatch.setattr(preparation, "COMMAND", (sys.executable, "-c", "raise SystemExit('a secret path')"))

    with pytest.raises(BackboneError, match="the service's log says why") as told:
        prepare("timm:broken", tmp_path)
    assert "secret" not in str(told.value)
    assert "a secret path" in str(lines)


@pytest.mark.parametrize("name", ["timm:", "timm:a/b", "timm:a b", "timm:a\0", "timm:" + "a" * 101, "timm:ä", "../x"])
def test_a_name_that_no_file_and_no_command_should_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownBackbone):
        on_openvino(tmp_path).compiled(name)
    assert not list(tmp_path.iterdir())
