"""The files of a running service: nobody else may read them, and what was deleted is not in them."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Service, eventually, picture

Start = Callable[..., Service]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_whatever_the_umask_nobody_else_has_a_right_to_any_file(start: Start, home: Path) -> None:
    """Database, log, lock, pulse of the worker, prepared backbone: all that is in the home, and the home itself."""
    before = os.umask(0)
    try:
        service = start(PROTOQUAD_CACHE=str(home / "backbones"), PROTOQUAD_ENGINE="openvino")
    finally:
        os.umask(before)
    session = service.teach("red", "red").json()["session"]["id"]
    service.session_over(session)

    paths = [home, *home.rglob("*")]
    assert {path.name for path in paths} >= {"home", "protoquad.db", "protoquad.db-wal", "serve.lock", "manifest.json"}
    assert [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert not [line for line in service.lines if "rights" in line["event"]]


def test_a_home_that_others_may_read_is_warned_of_once_and_left_as_it_is(start: Start, home: Path) -> None:
    """Somebody may have wanted it so; the line says how to change it."""
    home.mkdir()
    home.chmod(0o755)
    service = start()
    eventually(lambda: any(line["event"] == "worker ready" for line in service.lines))

    warnings = [line for line in service.lines if "rights" in line["event"]]
    assert [line["level"] for line in warnings] == ["warning"]
    assert f"chmod 700 {home}" in warnings[0]["event"]
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_an_image_of_a_deleted_class_is_soon_in_no_file(start: Start, home: Path) -> None:
    """Also if the service is killed as soon as it has answered: then the next start sees to it."""
    service = start(PROTOQUAD_WORKER="false")
    for name, colour in (("gone", "red"), ("kept", "green"), ("gone too", "blue")):
        service.teach(name, colour).raise_for_status()
    assert all(_found(home, colour) for colour in ("red", "green", "blue"))

    service.client.delete("/classes/1").raise_for_status()
    eventually(lambda: not _found(home, "red"))
    service.client.delete("/classes/3").raise_for_status()
    service.kill()
    start(PROTOQUAD_WORKER="false")
    eventually(lambda: not _found(home, "blue"))

    assert _found(home, "green")


def _found(home: Path, colour: str) -> bool:
    """Whether an image that was taught is in any file of the database."""
    raw = b"".join(path.read_bytes() for path in home.glob("protoquad.db*"))
    return any(picture(colour, seed)[-100:] in raw for seed in range(3))
