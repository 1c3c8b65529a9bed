"""What the client gets from a service, beside what the load driver gets from the same one, in turns."""

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.load import servers
from bench.load.bench_home import make_home, make_prototypes
from bench.load.measurement import Load, Report, measure
from bench.load.sample_images import SMALL, jpegs
from bench.load.servers import Server

CLASSES, IMAGES = 100, 32
CALLERS = 32  # of the load driver: enough to keep the service busy
DRIVER, CLIENTS = "load driver", {"Client": False, "AsyncClient": True}
LIMIT = 0.95  # of what the load driver gets


@dataclass(frozen=True)
class Length:
    images: int = 1000  # that the client predicts in each round
    seconds: float = 7.0  # of the load driver in each round: about as long
    warm: float = 1.0
    rounds: int = 5


@dataclass
class ClientSpeed:
    rates: dict[str, list[float]] = field(default_factory=dict)  # images per second, by round
    wrong: int = 0

    def ratios(self) -> dict[str, float]:
        """To the load driver in the same round."""
        pairs = {name: zip(self.rates[name], self.rates[DRIVER], strict=True) for name in CLIENTS}
        return {name: round(median(own / driver for own, driver in pair), 3) for name, pair in pairs.items()}


def measure_client(backbone: str, folder: Path, length: Length, report: Report) -> ClientSpeed:
    images = jpegs(SMALL, IMAGES)
    make_home(folder / "home", backbone, make_prototypes(backbone, images, CLASSES))
    found = ClientSpeed({name: [] for name in (DRIVER, *CLIENTS)})
    with servers.protoquad(folder / "home", backbone) as server:
        for number in range(length.rounds):
            names = list(found.rates)
            for name in names if number % 2 == 0 else reversed(names):
                if name == DRIVER:
                    rate = _driver(server, images, length, found)
                else:
                    rate = _client(server, images, length, found, asynchronous=CLIENTS[name])
                found.rates[name].append(round(rate, 1))
                report(f"{name}: {rate:.1f} images/s")
    return found


def _driver(server: Server, images: Sequence[bytes], length: Length, found: ClientSpeed) -> float:
    result = measure(server, images, Load(length.seconds, length.warm, callers=CALLERS))
    found.wrong += result.wrong
    return result.rate


def _client(
    server: Server, images: Sequence[bytes], length: Length, found: ClientSpeed, *, asynchronous: bool
) -> float:
    plan = {
        "url": server.url,
        "images": [base64.b64encode(image).decode() for image in images],
        "count": length.images,
        "asynchronous": asynchronous,
    }
    command = [sys.executable, "-m", "bench.load.client_driver"]
    process = subprocess.run(command, input=json.dumps(plan).encode(), capture_output=True, check=False)
    if process.returncode:
        raise RuntimeError(f"the client failed: {process.stderr.decode(errors='replace')[-2000:]}")
    result = json.loads(process.stdout.splitlines()[-1])
    found.wrong += result["wrong"]
    return float(result["answers"] / result["seconds"])
