"""Whatever is wrong with the home folder or the database, every command says so in one sentence and ends with 2."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import Result

from migrations import schema
from store import catalogue
from store.database import Database
from tests.painted import paint

SECONDS = 60
# Root may read and write whatever the mode says, unless it gives that up.
AS_IF_NOT_ROOT = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
SERVERS = ("serve --port 0", "worker")  # in a process of their own: one that starts after all does not end
OTHERS = (
    "keys create",
    "keys list",
    "base {images} --epochs 0",
    "backup {out}",
    "export default {out}",
    "migrate",
)
# Commands open a database in one of two ways: making it where there is none, or not. One of each does for most cases.
MAKES_ONE, NEEDS_ONE = "migrate", "backup {out}"


@dataclass(frozen=True)
class Case:
    """A home in which no command can work, and a word of what each must say."""

    home: Path
    says: str
    environment: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    no_writes: bool = False

    @property
    def limits_the_process(self) -> bool:
        return bool(self.prefix) or self.no_writes


Ended = tuple[int, str]  # exit code, and what was said on standard error
Make = Callable[[Path, Path], Case]  # from a folder to work in, and a home that is sound


def a_file_as_home(folder: Path, _: Path) -> Case:
    (folder / "home").write_text("not a folder")
    return Case(folder / "home", str(folder / "home"))


def a_link_to_nothing_as_home(folder: Path, _: Path) -> Case:
    (folder / "home").symlink_to(folder / "nowhere")
    return Case(folder / "home", str(folder / "home"))


def a_link_to_itself_as_home(folder: Path, _: Path) -> Case:
    (folder / "home").symlink_to(folder / "home")
    return Case(folder / "home", str(folder / "home"))


def a_parent_that_cannot_be_written(folder: Path, _: Path) -> Case:
    (folder / "parent").mkdir(mode=0o555)
    return Case(folder / "parent" / "home", str(folder / "parent" / "home"), prefix=tuple(AS_IF_NOT_ROOT))


def a_home_that_cannot_be_written(folder: Path, sound: Path) -> Case:
    shutil.copytree(sound, folder / "home")
    (folder / "home").chmod(0o555)
    return Case(folder / "home", str(folder / "home"), prefix=tuple(AS_IF_NOT_ROOT))


def a_database_that_cannot_be_read(folder: Path, sound: Path) -> Case:
    shutil.copytree(sound, folder / "home")
    (folder / "home" / "protoquad.db").chmod(0)
    return Case(folder / "home", "cannot be read and written by this user", prefix=tuple(AS_IF_NOT_ROOT))


def something_else_as_database(folder: Path, _: Path) -> Case:
    (folder / "home").mkdir()
    (folder / "home" / "protoquad.db").write_bytes(b"Dear diary, " * 1000)
    return Case(folder / "home", "is not a database")


def a_damaged_database(folder: Path, sound: Path) -> Case:
    shutil.copytree(sound, folder / "home")
    file = folder / "home" / "protoquad.db"
    file.write_bytes(file.read_bytes()[:100].ljust(file.stat().st_size, b"\xff"))
    return Case(folder / "home", "is damaged")


def half_a_database(folder: Path, sound: Path) -> Case:
    shutil.copytree(sound, folder / "home")
    file = folder / "home" / "protoquad.db"
    file.write_bytes(file.read_bytes()[:5000])
    return Case(folder / "home", "is damaged")


def a_database_of_another_program(folder: Path, _: Path) -> Case:
    (folder / "home").mkdir()
    with closing(sqlite3.connect(folder / "home" / "protoquad.db")) as other:
        other.execute("CREATE TABLE invoices (total INTEGER)")
    return Case(folder / "home", "'invoices'")


def a_folder_as_database(folder: Path, _: Path) -> Case:
    (folder / "home" / "protoquad.db").mkdir(parents=True)
    return Case(folder / "home", "is not a file")


def a_disk_without_room(folder: Path, sound: Path) -> Case:
    shutil.copytree(sound, folder / "home")
    return Case(folder / "home", "cannot be used", no_writes=True)


def an_unknown_kind_of_database(folder: Path, _: Path) -> Case:
    return Case(folder / "home", "postgresql://", {"PROTOQUAD_DATABASE_URL": "mysql://somebody:hunter2@host/name"})


def a_url_that_is_none(folder: Path, _: Path) -> Case:
    return Case(folder / "home", "postgresql://", {"PROTOQUAD_DATABASE_URL": "postgresql://a:hunter2@host:port/name"})


CASES: tuple[Make, ...] = (
    a_file_as_home,
    a_link_to_nothing_as_home,
    a_link_to_itself_as_home,
    a_parent_that_cannot_be_written,
    a_home_that_cannot_be_written,
    a_database_that_cannot_be_read,
    something_else_as_database,
    a_damaged_database,
    half_a_database,
    a_database_of_another_program,
    a_folder_as_database,
    a_disk_without_room,
    an_unknown_kind_of_database,
    a_url_that_is_none,
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint(tmp_path_factory.mktemp("images"), {"red": 2, "green": 2})


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which every command works."""
    home = tmp_path_factory.mktemp("sound") / "home"
    with closing(Database(f"sqlite:///{home / 'protoquad.db'}")) as database:
        schema.upgrade(database)
        with database.write() as db:
            catalogue.create(db, "default", "resnet32", 1.0)
    return home


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_what_cannot_be_used_is_named_in_one_sentence(
    make: Make, tmp_path: Path, images: Path, sound: Path, ended: Callable[[Case, list[str]], list[Ended]]
) -> None:
    """On standard error, with exit code 2 and without a traceback."""
    case = make(tmp_path, sound)
    commands = [*SERVERS, *OTHERS] if make is a_damaged_database else [MAKES_ONE, NEEDS_ONE]
    if case.prefix and subprocess.run([*case.prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("root cannot give up its rights here")

    words = [command.format(out=tmp_path / f"out-{number}", images=images) for number, command in enumerate(commands)]

    for command, (code, said) in zip(commands, ended(case, words), strict=True):
        assert code == 2, (command, said)
        assert said.startswith("error: "), (command, said)
        assert said.count("\n") == 1, (command, said)
        assert case.says in said, (command, said)
        assert "hunter2" not in said, command


@pytest.fixture
def ended(invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> Callable[[Case, list[str]], list[Ended]]:
    """Runs commands in a home, within this process unless that would not do."""

    def run(case: Case, commands: list[str]) -> list[Ended]:
        environment = {"PROTOQUAD_HOME": str(case.home), "PROTOQUAD_BACKBONE": "resnet32", **case.environment}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        apart = [command for command in commands if case.limits_the_process or command in SERVERS]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(zip(apart, pool.map(lambda command: _apart(case, command), apart), strict=True))
        for command in commands:
            if command not in found:
                result = invoke(*command.split())
                found[command] = (result.exit_code, result.stderr)
        return [found[command] for command in commands]

    return run


def _apart(case: Case, command: str) -> Ended:
    done = subprocess.run(
        [*case.prefix, sys.executable, "-m", "protoquad", *command.split()],
        preexec_fn=_forbid_writes if case.no_writes else None,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_lock_that_cannot_be_opened_is_named(sound: Path, tmp_path: Path) -> None:
    """It is what keeps a second service away, so the first does not start without it."""
    shutil.copytree(sound, tmp_path / "home")
    (tmp_path / "home" / "serve.lock").mkdir()

    done = subprocess.run(
        [sys.executable, "-m", "protoquad", "serve", "--port", "0"],
        env={**os.environ, "PROTOQUAD_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path / 'home' / 'serve.lock'}: Is a directory\n"


def _forbid_writes() -> None:
    """As a disk does that is full to the last byte."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
