"""Overheads that must stay small: each is a ratio of two times measured in turns, and has a limit."""

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from bench.load import servers
from bench.load.bench_home import add_history, client_of, copy_home, make_home, make_prototypes, teach
from bench.load.measurement import Report
from bench.load.sample_images import SMALL, jpegs, shot
from core.image_cost import inspect
from core.images import decode

CLASSES = 40
PLAIN, NO_BROKER, LONG_HISTORY = "plain", "unreachable broker", "long history"
REQUESTS = ("predict", "teach", "activate")
LIMITS = {NO_BROKER: 1.5, LONG_HISTORY: 3.0}  # of a request, as a multiple of the same request to the plain service
MOST_INSPECTION = 0.05  # of the time to decode: every image of a prediction is inspected


@dataclass(frozen=True)
class Length:
    rounds: int = 24
    versions: int = 5_000  # of the long history


@dataclass(frozen=True)
class Overhead:
    name: str
    ratio: float
    limit: float

    @property
    def is_small(self) -> bool:
        return self.ratio <= self.limit


def measure_overheads(backbone: str, folder: Path, length: Length, report: Report) -> list[Overhead]:
    found = [Overhead("inspecting an image / decoding it", _inspection_ratio(), MOST_INSPECTION)]
    milliseconds = _measure_requests(backbone, folder, length, report)
    for name, limit in LIMITS.items():
        for request in REQUESTS:
            ratio = milliseconds[name, request] / milliseconds[PLAIN, request]
            found.append(Overhead(f"{request}, {name} / {PLAIN}", round(ratio, 2), limit))
    return found


def _inspection_ratio() -> float:
    (image,) = jpegs((640, 480), 1)

    def cpu_seconds(work: Callable[[], object], times: int) -> float:
        begin = time.process_time()
        for _ in range(times):
            work()
        return (time.process_time() - begin) / times

    return round(cpu_seconds(lambda: inspect(image), 500) / cpu_seconds(lambda: decode(image, short_side=256), 50), 4)


def _measure_requests(backbone: str, folder: Path, length: Length, report: Report) -> dict[tuple[str, str], float]:
    """Median milliseconds by server and request; the first two rounds warm up."""
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        clients = _start_all(backbone, folder, length, stack)
        for number in range(length.rounds + 2):
            for name, client in clients.items():
                for request, milliseconds in _timed_requests(client, number).items():
                    measured[name, request].append(milliseconds)
            report(f"round {number + 1} of {length.rounds + 2}")
    return {key: median(times[2:]) for key, times in measured.items()}


def _start_all(backbone: str, folder: Path, length: Length, stack: ExitStack) -> dict[str, httpx.Client]:
    homes = {name: folder / name for name in (PLAIN, NO_BROKER, LONG_HISTORY)}
    images = jpegs(SMALL, CLASSES)
    make_home(homes[PLAIN], backbone, make_prototypes(backbone, images, CLASSES))
    for name in (NO_BROKER, LONG_HISTORY):
        copy_home(homes[PLAIN], homes[name])
    add_history(homes[LONG_HISTORY], length.versions)
    brokers = {NO_BROKER: f"redis://127.0.0.1:{stack.enter_context(_silent_port())}/0"}
    clients = {}
    for name, home in homes.items():
        running = servers.protoquad(home, backbone, broker_url=brokers.get(name, ""))
        clients[name] = stack.enter_context(client_of(stack.enter_context(running)))
    return clients


@contextmanager
def _silent_port() -> Iterator[int]:
    """A port with a full backlog: the kernel drops the packets of further connections without an answer."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def _timed_requests(client: httpx.Client, number: int) -> dict[str, float]:
    shots = [shot(number, place) for place in range(5)]
    taught = teach(client, f"taught {number}", shots).raise_for_status()
    predicted = client.post("/predict", files={"images": shots[0]}).raise_for_status()
    version = taught.json()["version"]
    activated = client.post(f"/versions/{version - 1}/activate").raise_for_status()
    client.post(f"/versions/{version}/activate").raise_for_status()
    answers = {"teach": taught, "predict": predicted, "activate": activated}
    return {name: 1000 * answer.elapsed.total_seconds() for name, answer in answers.items()}
