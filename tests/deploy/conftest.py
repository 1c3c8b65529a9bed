"""Services and commands as an operator starts them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from migrations import schema
from store import api_keys
from store.database import Database
from tests.deploy.page import REPOSITORY
from tests.processes import SMALL, Service

Shell = Callable[..., str]


def prepared(url: str) -> str:
    """Makes the tables and a key, which it answers: what `protoquad migrate` and `protoquad keys create` do."""
    with closing(Database(url)) as database:
        schema.upgrade(database)
        with database.write() as db:
            return api_keys.create(db, "first", ["admin"])


@pytest.fixture
def start() -> Iterator[Callable[..., Service]]:
    """Starts services; whatever still runs at the end is killed."""
    with ExitStack() as stack:
        yield lambda **environment: stack.enter_context(closing(Service(environment)))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs lines in a folder of their own that has a `deploy/`, with `protoquad` at hand; answers what they print."""
    folder = tmp_path / "operator"
    folder.mkdir()
    (folder / "deploy").symlink_to(REPOSITORY / "deploy")

    def run(*lines: str, programs: Path | None = None, fails: bool = False, **environment: str) -> str:
        path = [str(Path(sys.executable).parent), os.environ["PATH"]]
        if programs is not None:
            path.insert(0, str(programs))
        done = subprocess.run(
            ["bash", "-euc", "\n".join(lines)],
            env={**os.environ, **SMALL, **environment, "PATH": os.pathsep.join(path)},
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run
