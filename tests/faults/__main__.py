"""The whole suite: `python -m tests.faults --rounds 200 --seed 1`. Ends with a report, and with 1 on a failure."""

import argparse
import signal
import subprocess
import sys

from tests.faults import faults
from tests.faults.embedded import EmbeddedStage, namespaces, within_namespace
from tests.faults.rounds import Play
from tests.faults.stage import Stage

ROUNDS_PER_FULL_DISK = 10


def deployed(rounds: int, seed: int, *, first: int = 1) -> bool:
    """Replicas and workers on PostgreSQL and Redis."""
    with Stage() as stage:
        play = Play("deployed", stage, seed, faults.DEPLOYED, faults.deployed, models=("default", "second"), tell=tell)
        return play.run(rounds, first=first)


def embedded(rounds: int, seed: int) -> bool:
    """SQLite on a disk that is filled."""
    with EmbeddedStage() as stage:
        kinds = faults.ANYWHERE | (faults.ON_A_SMALL_DISK if stage.disk.small else {})
        play = Play("embedded", stage, seed, kinds, faults.embedded, models=("default",), tell=tell)
        return play.run(rounds)


def embedded_on_its_own_disk(rounds: int, seed: int) -> bool:
    """In a process of its own: mounting a disk is for a namespace that holds nothing else."""
    if not namespaces():
        tell("embedded: no disk can be mounted here; the quota of a file stands in for it")
    arguments = ["-m", "tests.faults", "--act", "embedded", "--rounds", str(rounds), "--seed", str(seed)]
    command, environment = within_namespace([sys.executable, *arguments])
    return subprocess.run(command, env=environment, check=False).returncode == 0


def tell(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, help="the number of the first round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--act", choices=["deployed", "embedded", "contention", "all"], default="all")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    held = []
    if chosen.act in {"deployed", "all"}:
        held.append(deployed(chosen.rounds, chosen.seed, first=chosen.first))
    if chosen.act == "embedded":
        held.append(embedded(chosen.rounds, chosen.seed))
    if chosen.act == "all":
        held.append(embedded_on_its_own_disk(max(1, chosen.rounds // ROUNDS_PER_FULL_DISK), chosen.seed))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
