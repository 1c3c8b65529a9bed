"""Versions swapped under load: the effect on latency, and whether memory returns to its former size."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch

from bench.load import servers
from bench.load.bench_home import client_of, make_home, make_prototypes
from bench.load.measurement import Load, LoadResult, Report, measure
from bench.load.sample_images import SMALL, jpegs
from bench.load.servers import Server
from core.state import Weights, weights_of
from engine.pretrained import as_it_comes

IMAGES = 32
CLASSES = 100
TAILS = 8  # more than a service keeps compiled, so that every swap loads a network
SATURATED = 32  # callers


@dataclass(frozen=True)
class Length:
    rounds: int = 5  # of a steady load and the same load with swaps; the median counts
    swaps: int = 25  # in each round, with hardly a pause between two
    seconds: float = 10.0  # of each load
    predictions: int = 20_000
    share: float = 0.5  # of the throughput: the load while versions are swapped
    settle: float = 20.0  # seconds of load before memory is first read
    warm: float = 1.0  # seconds of each load before anything is measured


@dataclass
class SwapResults:
    steady: list[LoadResult] = field(default_factory=list)
    swapping: list[LoadResult] = field(default_factory=list)
    swaps: list[float] = field(default_factory=list)  # milliseconds until each activation was answered
    answers: int = 0
    wrong: int = 0
    megabytes: tuple[float, float] = (0.0, 0.0)  # before and after

    @property
    def growth(self) -> float:
        return self.megabytes[1] / self.megabytes[0] - 1

    def ratios(self) -> dict[str, float]:
        p99 = median(other.p99 / one.p99 for one, other in zip(self.steady, self.swapping, strict=True))
        return {"p99": round(p99, 3), "growth": round(self.growth, 4)}


def measure_swaps(backbone: str, folder: Path, length: Length, report: Report) -> SwapResults:
    images = jpegs(SMALL, IMAGES)
    make_home(folder / "home", backbone, make_prototypes(backbone, images, CLASSES), tails=_make_tails(backbone))
    with servers.protoquad(folder / "home", backbone) as server:
        settled = measure(server, images, Load(length.settle, length.warm, callers=SATURATED))
        with _swapping(server, interval=length.settle / 40, swaps=TAILS):
            measure(server, images, Load(0.3 * length.settle, length.warm, callers=SATURATED))
        before = server.resident_megabytes()
        report(f"{SATURATED} callers: {settled}; {before:.0f} MB")
        results = _measure_rounds(server, images, length.share * settled.rate, length, report)
        loads = [*results.steady, *results.swapping]
        while (left := length.predictions - sum(one.answers for one in loads)) > 0:
            seconds = min(60.0, max(2.0, left / settled.rate))
            loads.append(measure(server, images, Load(seconds, length.warm, callers=SATURATED)))
            report(f"{sum(one.answers for one in loads)} predictions, {server.resident_megabytes():.0f} MB")
        results.megabytes = (round(before, 1), round(server.resident_megabytes(), 1))
    results.answers, results.wrong = sum(one.answers for one in loads), sum(one.wrong for one in loads)
    return results


def _measure_rounds(
    server: Server, images: Sequence[bytes], rate: float, length: Length, report: Report
) -> SwapResults:
    """In turn, so that both kinds of load see the same machine."""
    results = SwapResults()
    load = Load(length.seconds, length.warm, rate=rate)
    for _ in range(length.rounds):
        results.steady.append(measure(server, images, load))
        report(f"at {length.share:.0%} of that: {results.steady[-1]}")
        with _swapping(server, interval=length.seconds / length.swaps, swaps=length.swaps) as milliseconds:
            results.swapping.append(measure(server, images, load))
        report(f"with {len(milliseconds)} swaps: {results.swapping[-1]}; {server.resident_megabytes():.0f} MB")
        results.swaps += milliseconds
    return results


def _make_tails(backbone: str) -> list[Weights]:
    """Each differs a little from the pretrained one: other weights, the same answers."""
    own = weights_of(as_it_comes(backbone), "tail")
    generator = torch.Generator().manual_seed(0)

    def near(weight: torch.Tensor) -> torch.Tensor:
        if not weight.is_floating_point():
            return weight
        return weight * (1 + 1e-4 * torch.rand(weight.shape, generator=generator))

    return [{name: near(weight) for name, weight in own.items()} for _ in range(TAILS)]


@contextmanager
def _swapping(server: Server, interval: float, swaps: int) -> Iterator[list[float]]:
    """Activate one version after another while the body runs; the list gets the milliseconds of each activation."""
    milliseconds: list[float] = []
    over = threading.Event()

    def swap() -> None:
        with client_of(server) as client:
            for number in range(swaps):
                begin = time.perf_counter()
                client.post(f"/versions/{2 + number % TAILS}/activate").raise_for_status()
                milliseconds.append(round(1000 * (time.perf_counter() - begin), 1))
                if over.wait(max(0.0, interval - (time.perf_counter() - begin))):
                    return

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(swap)
        try:
            yield milliseconds
        finally:
            over.set()
            job.result()
