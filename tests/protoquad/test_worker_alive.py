"""`protoquad worker-alive`: a worker's health is that it goes forward, not that it is there."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from protoquad import worker_alive_command
from workers.heartbeat import Heartbeat

ALLOWED = 60

app = typer.Typer()
app.command()(worker_alive_command.worker_alive)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROTOQUAD_HOME", str(tmp_path))
    monkeypatch.setenv("PROTOQUAD_STALL_SECONDS", str(ALLOWED))
    return tmp_path


def run() -> Result:
    return CliRunner().invoke(app, [])


def beaten(home: Path, *, seconds_ago: float) -> Path:
    pulse = Heartbeat(home)
    pulse.beat()
    moment = time.time() - seconds_ago
    os.utime(pulse.file, (moment, moment))
    return pulse.file


def test_a_worker_that_goes_forward_is_alive(home: Path) -> None:
    """Its last step may be as old as a step may take."""
    beaten(home, seconds_ago=ALLOWED - 10)

    assert run().exit_code == 0


def test_a_worker_that_stands_still_is_not(home: Path) -> None:
    """One line says which, and for how long."""
    file = beaten(home, seconds_ago=ALLOWED + 10)
    result = run()

    assert result.exit_code == 1
    assert result.output == f"worker {file.stem} has made no step for 70 s; 60 s are allowed\n"


def test_a_pulse_from_the_future_is_no_sign_of_life(home: Path) -> None:
    """It was left before the clock was set back; a worker that lives would have written another by now."""
    beaten(home, seconds_ago=-86400)

    assert run().exit_code == 1


def test_a_pulse_that_was_left_behind_does_not_speak_for_the_others(home: Path) -> None:
    """A worker that was killed leaves its file; the one that was started after it counts."""
    beaten(home, seconds_ago=ALLOWED * 10).rename(home / "workers" / "killed.heartbeat")
    beaten(home, seconds_ago=0)

    assert run().exit_code == 0


def test_where_no_worker_ever_was_it_says_so(home: Path) -> None:
    """Nothing there is not the same as nothing wrong."""
    result = run()

    assert result.exit_code == 1
    assert result.output == f"no worker runs on {home}\n"


def test_it_loads_neither_torch_nor_a_database_driver(home: Path) -> None:
    """It runs every few seconds, beside work that needs the processor."""
    beaten(home, seconds_ago=0)
    script = (
        "import sys\n"
        "from protoquad.main import app\n"
        "app(['worker-alive'], standalone_mode=False)\n"
        "print(sorted({'torch', 'alembic', 'psycopg'} & sys.modules.keys()))\n"
    )
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=os.environ)

    assert told.stdout.splitlines()[-1] == "[]"
