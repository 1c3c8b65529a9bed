"""The attacker's process: `python -m tests.hostile.attacker NAME HOST PORT SECONDS SCALE KEY`.

Says when it is ready, waits for a line, attacks, and prints what it was answered.
"""

import json
import os
import sys
import time

from tests.hostile.attacks import carry_out, get_ready
from tests.hostile.target import Target


def main(name: str, host: str, port: str, seconds: str, scale: str, key: str) -> None:
    get_ready(name)
    print("ready", flush=True)
    sys.stdin.readline()
    target = Target(host, int(port), key, time.monotonic() + float(seconds), float(scale))
    carry_out(name, target)
    print(json.dumps(target.statuses), flush=True)
    os._exit(0)  # its connections are cut, whatever they were at


if __name__ == "__main__":
    main(*sys.argv[1:])
