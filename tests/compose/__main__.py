"""Build, start, teach, kill each service, roll out a new image, stop and start again.

Prints one line for each step with its seconds. At the first failure it prints the logs of the services of that step
and exits with code 1. Everything it made is removed.
"""

import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.compose import outages, releases, startup
from tests.compose.scenario import Scenario
from tests.compose.stack import REPLICAS, Failed, Stack


def run_all(scenario: Scenario) -> None:
    stack = scenario.stack
    startup.refuse_without_secrets(scenario)
    startup.start(scenario)
    startup.contain(scenario)
    startup.learn(scenario)
    startup.take_large_bodies(scenario)
    for replica in stack.containers("api"):
        outages.kill_replica(scenario, replica)
    outages.stop_replica(scenario)
    for container in (stack.containers("api")[0], stack.containers("worker")[0]):
        outages.crash(scenario, container)
    outages.kill_redis(scenario)
    for worker in stack.containers("worker"):
        outages.kill_worker(scenario, worker)
    outages.stop_workers(scenario)
    outages.kill_database(scenario)
    outages.kill_proxy(scenario)
    releases.roll_out(scenario)
    releases.stop_and_start(scenario)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` removes everything then too
    began = time.monotonic()
    scale = " and ".join(f"{number} × {service}" for service, number in REPLICAS.items())
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder))
        print(f"project {stack.project} on port {stack.port}, with {scale}", flush=True)
        try:
            run_all(Scenario(stack))
        except Failed as failure:
            print(f"\nfailed: {failure}", file=sys.stderr)
            return 1
        finally:
            stack.remove()
    print(f"{time.monotonic() - began:7.1f} s  in total; all steps passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
