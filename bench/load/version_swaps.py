"""Versions swapped under load: what it costs those who predict, and whether memory returns to where it was."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx
import torch

from bench.load import servers
from bench.load.driving import Measured
from bench.load.sample_images import SMALL, jpegs
from bench.load.servers import Server
from bench.load.stage import MakeHome, Tell, driven, sentence, taught
from core import backbones
from core.state import Weights, weights_of

PICTURES = 32
CLASSES = 100
TAILS = 8  # more than a service keeps compiled, so that every swap loads a network
SATURATED = 32  # callers


@dataclass(frozen=True)
class Length:
    rounds: int = 5  # of a steady load and the same with swaps; the median counts
    swaps: int = 25  # in each of them, with hardly a pause between two
    seconds: float = 10.0  # of each load
    predictions: int = 20_000
    share: float = 0.5  # of the throughput: what callers ask for while versions are swapped
    settle: float = 20.0  # of load, before memory is first read


@dataclass
class Swapped:
    steady: list[Measured]
    swapping: list[Measured]
    swaps: list[float]  # milliseconds until each activation was answered
    answers: int
    wrong: int
    megabytes: tuple[float, float]  # before and after

    @property
    def growth(self) -> float:
        return self.megabytes[1] / self.megabytes[0] - 1

    def ratios(self) -> dict[str, float]:
        p99 = median(other.p99 / one.p99 for one, other in zip(self.steady, self.swapping, strict=True))
        return {"p99": round(p99, 3), "growth": round(self.growth, 4)}


def run_swaps(backbone: str, folder: Path, make_home: MakeHome, length: Length, tell: Tell) -> Swapped:
    pictures = jpegs(SMALL, PICTURES)
    make_home(folder / "home", backbone, taught(backbone, pictures, CLASSES), tails_of(backbone))
    with servers.protoquad(folder / "home", backbone, folder / "protoquad.log") as server:
        tell("the server is up")
        full = {"callers": SATURATED, "warm": 1.0}
        settled = driven(server, pictures, 0, {**full, "seconds": length.settle})
        with _swapping(server, interval=0.5, swaps=TAILS):
            driven(server, pictures, 0, {**full, "seconds": 0.5 * TAILS + 2})
        before = server.resident_megabytes()
        tell(f"{SATURATED} callers: {sentence(settled)}; {before:.0f} MB")
        steady, swapping, swaps = _rounds(server, pictures, length.share * settled.rate, length, tell)
        loads = [*steady, *swapping]
        while (left := length.predictions - sum(one.answers for one in loads)) > 0:
            seconds = min(60.0, max(2.0, left / settled.rate))
            loads.append(driven(server, pictures, 0, {**full, "seconds": seconds}))
            tell(f"{sum(one.answers for one in loads)} predictions, {server.resident_megabytes():.0f} MB")
        after = server.resident_megabytes()
    answers, wrong = sum(one.answers for one in loads), sum(one.wrong for one in loads)
    return Swapped(steady, swapping, swaps, answers, wrong, (round(before, 1), round(after, 1)))


def _rounds(
    server: Server, pictures: Sequence[bytes], rate: float, length: Length, tell: Tell
) -> tuple[list[Measured], list[Measured], list[float]]:
    """In turn, so that the machine's moods hit both alike."""
    paced = {"rate": rate, "warm": 1.0, "seconds": length.seconds}
    steady, swapping, swaps = [], [], []
    for _ in range(length.rounds):
        steady.append(driven(server, pictures, 0, paced))
        tell(f"at {length.share:.0%} of that: {sentence(steady[-1])}")
        with _swapping(server, interval=length.seconds / length.swaps, swaps=length.swaps) as took:
            swapping.append(driven(server, pictures, 0, paced))
        tell(f"with {len(took)} swaps meanwhile: {sentence(swapping[-1])}; {server.resident_megabytes():.0f} MB")
        swaps += took
    return steady, swapping, swaps


def tails_of(backbone: str) -> list[Weights]:
    """Each a little off the pretrained one: other weights, the same answers."""
    own = weights_of(backbones.as_it_comes(backbone), "tail")
    generator = torch.Generator().manual_seed(0)

    def near(weight: torch.Tensor) -> torch.Tensor:
        if not weight.is_floating_point():
            return weight
        return weight * (1 + 1e-4 * torch.rand(weight.shape, generator=generator))

    return [{name: near(weight) for name, weight in own.items()} for _ in range(TAILS)]


@contextmanager
def _swapping(server: Server, interval: float, swaps: int) -> Iterator[list[float]]:
    """Activates one version after another while the body runs; fills the list with how long each took, in ms."""
    took: list[float] = []
    over = threading.Event()

    def swap() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
            for number in range(swaps):
                begin = time.perf_counter()
                client.post(f"/versions/{2 + number % TAILS}/activate").raise_for_status()
                took.append(round(1000 * (time.perf_counter() - begin), 1))
                if over.wait(max(0.0, interval - (time.perf_counter() - begin))):
                    return

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(swap)
        try:
            yield took
        finally:
            over.set()
            job.result()
