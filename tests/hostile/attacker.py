"""The attacker's process, which carries out one attack after another: `python -m tests.hostile.attacker HOST PORT`.

For each line of JSON (name of an attack, seconds, scale, key) it gets ready and says so, waits for a line, attacks and
prints what it was answered. Each attack is a fork: it starts at once, and its memory and connections go when it ends.
"""

import json
import os
import sys
import time

from tests.hostile.attacks import carry_out, get_ready
from tests.hostile.target import Target


def main(host: str, port: str) -> None:
    while order := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            _attack(host, int(port), *json.loads(order))
        elif os.waitpid(child, 0)[1] != 0:
            sys.exit("the attack failed")


def _attack(host: str, port: int, name: str, seconds: float, scale: float, key: str) -> None:
    get_ready(name)
    print("ready", flush=True)
    sys.stdin.readline()
    target = Target(host, port, key, time.monotonic() + seconds, scale)
    carry_out(name, target)
    print(json.dumps(target.statuses), flush=True)
    os._exit(0)  # its connections are cut, whatever they were at


if __name__ == "__main__":
    main(*sys.argv[1:])
