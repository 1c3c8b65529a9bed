"""Several checkouts of this project, measured in turns.

All know the same classes: the first makes a home, and the others get a copy of its database, so the first should be
the oldest. While one is measured the others are paused. Only ratios within a round count, because the speed of the
machine changes over time.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from torch import Tensor

from bench.load import servers
from bench.load.bench_home import copy_home, make_home, make_prototypes
from bench.load.measurement import Load, LoadResult, Report, measure
from bench.load.sample_images import LARGE, SMALL, jpegs
from bench.load.servers import Checkout, Server

IMAGES = {"small": (SMALL, 32), "large": (LARGE, 4)}  # size and number of different images


@dataclass(frozen=True)
class CheckoutLoad:
    """Callers that send images of one size."""

    images: str
    callers: int

    @classmethod
    def parse(cls, text: str) -> "CheckoutLoad":
        """`small:32`: 32 callers with small images."""
        images, _, callers = text.partition(":")
        if images not in IMAGES or not callers.isdigit() or int(callers) < 1:
            raise ValueError(f"'{text}' is not a load; write small:32 or large:8, the number being that of callers")
        return cls(images, int(callers))

    def __str__(self) -> str:
        return f"{self.images}:{self.callers}"


@dataclass(frozen=True)
class Plan:
    backbone: str
    classes: Sequence[int]
    loads: Sequence[CheckoutLoad]
    rounds: int
    seconds: float  # of each measurement
    warm: float = 1.0


@dataclass
class CheckoutResults:
    """One load with one number of classes. Ratios are those to the first checkout, one for each round."""

    classes: int
    load: str
    rounds: dict[str, list[LoadResult]] = field(default_factory=dict)  # by checkout
    megabytes: dict[str, float] = field(default_factory=dict)

    def ratios(self, name: str) -> tuple[list[float], list[float]]:
        """Of throughput and of p99."""
        pairs = list(zip(self.rounds[name], next(iter(self.rounds.values())), strict=True))
        return [own.rate / first.rate for own, first in pairs], [own.p99 / first.p99 for own, first in pairs]

    def summary(self, name: str) -> dict[str, Any]:
        throughput, p99 = self.ratios(name)
        return {
            "throughput_ratio": round(median(throughput), 3),
            "throughput_ratios": [round(ratio, 3) for ratio in throughput],
            "p99_ratio": round(median(p99), 3),
            "p99_ratios": [round(ratio, 3) for ratio in p99],
            "answers_per_second": round(median(one.rate for one in self.rounds[name]), 1),
            "p99": round(median(one.p99 for one in self.rounds[name]), 1),
            "megabytes": self.megabytes[name],
            "wrong": sum(one.wrong for one in self.rounds[name]),
        }


@dataclass(frozen=True)
class _Images:
    """The images of one size; they show consecutive classes."""

    jpegs: Sequence[bytes]
    first_class: int


def compare_checkouts(checkouts: Sequence[Checkout], plan: Plan, folder: Path, report: Report) -> list[CheckoutResults]:
    images = _make_images(plan.loads)
    results = []
    for classes in plan.classes:
        shown = [jpeg for some in images.values() for jpeg in some.jpegs]
        prototypes = make_prototypes(plan.backbone, shown, classes)
        with ExitStack() as stack:
            running = _start_all(checkouts, plan.backbone, prototypes, folder / str(classes), stack)
            report(f"{len(running)} servers with {classes} classes are up")
            for load in plan.loads:
                found = CheckoutResults(classes, str(load), {server.name: [] for server in running})
                _measure_rounds(found, running, images[load.images], plan, load, report)
                results.append(found)
    return results


def _make_images(loads: Sequence[CheckoutLoad]) -> dict[str, _Images]:
    images: dict[str, _Images] = {}
    first_class = 1
    for kind in dict.fromkeys(load.images for load in loads):
        size, count = IMAGES[kind]
        images[kind] = _Images(jpegs(size, count), first_class)
        first_class += count
    return images


def _start_all(
    checkouts: Sequence[Checkout], backbone: str, prototypes: Tensor, folder: Path, stack: ExitStack
) -> list[Server]:
    """All are paused."""
    homes = [folder / checkout.name for checkout in checkouts]
    make_home(homes[0], backbone, prototypes, checkout=checkouts[0])
    running = []
    for checkout, home in zip(checkouts, homes, strict=True):
        if home is not homes[0]:
            copy_home(homes[0], home)
        running.append(stack.enter_context(servers.protoquad(home, backbone, checkout=checkout)))
        running[-1].pause()
    return running


def _measure_rounds(
    results: CheckoutResults, running: Sequence[Server], images: _Images, plan: Plan, load: CheckoutLoad, report: Report
) -> None:
    """Every second round is in reverse order, so that none is always first."""
    wanted = Load(plan.seconds, plan.warm, callers=load.callers)
    for number in range(plan.rounds):
        for server in running if number % 2 == 0 else reversed(running):
            with server.awake():
                result = measure(server, images.jpegs, wanted, first_class=images.first_class)
            results.rounds[server.name].append(result)
            report(f"{results.classes} classes, {load}, round {number + 1}, {server.name}: {result}")
    results.megabytes = {server.name: round(server.resident_megabytes()) for server in running}
