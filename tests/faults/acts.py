"""The three acts of the suite. Each tells a report and answers whether everything held."""

import math
import subprocess
import sys
from collections.abc import Callable

from tests.faults import faults
from tests.faults.contention import Contention
from tests.faults.embedded import EmbeddedStage, within_namespace
from tests.faults.rounds import Play
from tests.faults.stage import Stage

Tell = Callable[[str], object]


def deployed(rounds: int, seed: int, tell: Tell, seconds: float = math.inf) -> bool:
    """Replicas and workers on PostgreSQL and Redis, while each of them fails."""
    with Stage() as stage:
        models = ("default", "second")
        return Play("deployed", stage, seed, faults.DEPLOYED, faults.deployed, models, tell).run(rounds, seconds)


def embedded(rounds: int, seed: int, tell: Tell) -> bool:
    """SQLite on a disk that is full; in a process of its own, whose disk is seen by nobody else."""
    arguments = ["-m", "tests.faults", "--act", "full-disk", "--rounds", str(rounds), "--seed", str(seed)]
    command, environment = within_namespace([sys.executable, *arguments])
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            tell(line.rstrip())
    return process.returncode == 0


def full_disk(rounds: int, seed: int, tell: Tell) -> bool:
    """As `embedded`, in this process."""
    with EmbeddedStage() as stage:
        kinds = faults.ANYWHERE | (faults.ON_A_SMALL_DISK if stage.disk.small else {})
        if not stage.disk.small:
            tell("no disk can be mounted here: a quota of the files' size stands in for it")
        return Play("embedded", stage, seed, kinds, faults.embedded, ("default",), tell).run(rounds)


def contention(workers: int, models: int, sessions: int, pauses: int, seed: int, tell: Tell) -> bool:
    """Many workers on few models, while some of them are stopped in the middle of a session."""
    # As often as it takes: each attempt that a stopped worker loses would count towards the session's failure.
    with Stage(replicas=1, workers=workers, PROTOQUAD_SESSION_DELAY="0", PROTOQUAD_ATTEMPTS="99") as stage:
        return Contention(stage, models, sessions, pauses, seed, tell).run()
