"""The whole suite: `python -m tests.faults --rounds 200 --seed 1`. Ends with reports, and with 1 on a failure."""

import argparse
import logging
import signal
import sys

import structlog

from tests.faults import acts

ROUNDS_PER_FULL_DISK = 10
WORKERS, MODELS, SESSIONS, PAUSES = 10, 5, 200, 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="the same seed plays the same rounds")
    parser.add_argument("--minutes", type=float, default=90, help="no round begins later than that")
    parser.add_argument("--act", choices=["deployed", "embedded", "full-disk", "contention", "all"], default="all")
    chosen = parser.parse_args()
    # What the oracle reads with is the service's own, and says what it does.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    rounds, seed = chosen.rounds, chosen.seed
    if chosen.act == "full-disk":
        return 0 if acts.full_disk(rounds, seed, tell) else 1
    held = []
    if chosen.act in {"deployed", "all"}:
        held.append(acts.deployed(rounds, seed, tell, 60 * chosen.minutes))
    if chosen.act in {"embedded", "all"}:
        held.append(acts.embedded(max(1, rounds // ROUNDS_PER_FULL_DISK), seed, tell))
    if chosen.act in {"contention", "all"}:
        held.append(acts.contention(WORKERS, MODELS, rounds * SESSIONS // 200, PAUSES, seed, tell))
    return 0 if all(held) else 1


def tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
