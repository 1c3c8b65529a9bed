"""Two checkouts of protoquad, measured in turns: `python -m bench.load.checkouts BEFORE AFTER --out FILE`.

Each answers the same questions in a process of its own, and stands still while the other is measured. What counts are
ratios within a round, for the machine itself drifts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from bench.load.driving import plan
from bench.load.sample_images import LARGE, SMALL, jpegs, shot
from bench.load.servers import Server, protoquad_at

CLASSES, SHOTS, PICTURES = 20, 3, 16
LOADS = {
    "32 callers, small": (SMALL, 32),
    "1 caller, small": (SMALL, 1),
    "8 callers, 12 megapixels": (LARGE, 8),
}


@contextmanager
def taught(checkout: Path, folder: Path) -> Iterator[Server]:
    """A service of this checkout that knows some classes."""
    folder.mkdir()
    with protoquad_at(checkout, folder / "home", "efficientnet_lite0", folder / "log") as server:
        for number in range(CLASSES):
            files = [("shots", (f"{one}.jpg", shot(number, one))) for one in range(SHOTS)]
            answer = httpx.post(f"{_url(server)}/classes", data={"name": f"class {number}"}, files=files, timeout=60)
            answer.raise_for_status()
        server.pause()
        yield server


def _url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def answers(server: Server, pictures: Sequence[bytes]) -> list[int]:
    """The class that it gives each picture: the first answer is what later ones are compared with."""
    with server.awake(), httpx.Client(base_url=_url(server), timeout=60) as client:
        found = [client.post("/predict", files={"images": picture}).raise_for_status().json() for picture in pictures]
    return [one["predictions"][0]["top"][0]["class_id"] for one in found]


def measured(server: Server, pictures: Sequence[bytes], expected: list[int], callers: int, seconds: float) -> Any:
    load = {"warm": 1.0, "seconds": seconds, "callers": callers}
    asked = plan(
        port=server.port, ours=True, path="/predict", field="images", pictures=pictures, expected=expected, load=load
    )
    with server.awake():
        done = subprocess.run(
            [sys.executable, "-m", "bench.load.driving"], input=asked, stdout=subprocess.PIPE, check=True
        )
    return json.loads(done.stdout)


def compared(before: Path, after: Path, rounds: int, seconds: float) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {
            name: replace(stack.enter_context(taught(checkout, folder / name)), name=name)
            for name, checkout in (("before", before), ("after", after))
        }
        for load, (size, callers) in LOADS.items():
            pictures = jpegs(size, PICTURES)
            expected = {name: answers(server, pictures) for name, server in servers.items()}
            found: dict[str, list[Any]] = {name: [] for name in servers}
            for number in range(rounds):
                for name in sorted(servers, reverse=number % 2 == 0):
                    found[name].append(measured(servers[name], pictures, expected[name], callers, seconds))
            results[load] = _summary(found)
            print(f"{load}: {json.dumps(results[load])}", flush=True)
    return results


def _summary(found: dict[str, list[Any]]) -> dict[str, Any]:
    rates = {name: [one["answers"] / one["seconds"] for one in rounds] for name, rounds in found.items()}
    ratios = [after / before for before, after in zip(rates["before"], rates["after"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "rounds": [round(ratio, 3) for ratio in ratios],
        "answers_per_second": {name: round(statistics.median(own), 1) for name, own in rates.items()},
        "p99": {name: statistics.median(one["latencies"][2] for one in rounds) for name, rounds in found.items()},
        "wrong": {name: sum(one["wrong"] for one in rounds) for name, rounds in found.items()},
    }


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load.checkouts", description=__doc__)
    parser.add_argument("before", type=Path, help="a checkout, made with `git worktree add`")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--out", type=Path, help="where to write the figures")
    chosen = parser.parse_args()
    commits = {"before": _commit(chosen.before), "after": _commit(chosen.after)}
    results = compared(chosen.before.resolve(), chosen.after.resolve(), chosen.rounds, chosen.seconds)
    if chosen.out:
        command = f"python -m bench.load.checkouts BEFORE AFTER --rounds {chosen.rounds} --seconds {chosen.seconds:g}"
        chosen.out.write_text(json.dumps({"command": command, "commits": commits, "loads": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
