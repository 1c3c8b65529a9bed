"""The in-process limit: decode and engine in a loop, no HTTP. What a server could reach if asking cost nothing.

`python -m bench.load.limit BACKBONE PROTOTYPES` stays and measures whenever it is asked to, so that it can take turns
with the servers: pictures in base64 on the first line of standard input, then a JSON line for each measurement, and for
each a number on standard output. The first number, before any is asked for, says that it is ready.
"""

import base64
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from bench.peers.classifier import Classifier
from engine.compiled_module import throughput_mode
from engine.cores import usable_cores
from engine.graph_template import compile_module

BATCH = 8

What = Literal["pictures a second", "milliseconds for one", "milliseconds for five"]


class Engine:
    """The network and the nearest class mean, compiled as the service does it."""

    def __init__(self, classifier: Classifier) -> None:
        backbone = classifier.backbone
        picture = backbone.framing.blank()
        with torch.no_grad():
            activation = backbone.trunk(picture)
        self.trunk = compile_module(backbone.trunk, picture, device=torch.device("cpu"))
        self.tail = compile_module(backbone.tail, activation, device=torch.device("cpu"), latency=False)
        self.nearest = classifier.nearest

    def __call__(self, pictures: Tensor) -> int:
        return len(self.nearest.predict(self.tail(self.trunk(pictures)), 5))

    def on_one_core(self, pictures: Tensor) -> int:
        activations = throughput_mode(self.trunk)(pictures)
        return len(self.nearest.predict(throughput_mode(self.tail)(activations), 5))


def pictures_a_second(engine: Engine, classifier: Classifier, pictures: Sequence[bytes], seconds: float) -> float:
    """Threads that decode a batch and compute it, with nobody to wait for: more is not to be had of the machine.

    There are two more than cores: with fewer, cores stand still whenever two of them want Python at once.
    """
    end = time.perf_counter() + seconds
    threads = usable_cores() + 2

    def batches(number: int) -> int:
        source, done = islice(cycle(pictures), number, None), 0
        while time.perf_counter() < end:
            done += engine.on_one_core(torch.stack([classifier.picture(data) for data in islice(source, BATCH)]))
        return done

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(batches, range(threads)))
    return done / (time.perf_counter() - begin)


def milliseconds_for_one(engine: Engine, classifier: Classifier, pictures: Sequence[bytes], seconds: float) -> float:
    took, end = [], time.perf_counter() + seconds
    for data in cycle(pictures):
        begin = time.perf_counter()
        if begin > end:
            break
        engine(classifier.picture(data)[None])
        took.append(time.perf_counter() - begin)
    return 1000 * statistics.median(took)


def milliseconds_for_five(engine: Engine, classifier: Classifier, pictures: Sequence[bytes], seconds: float) -> float:
    """The engine alone, without decoding."""
    batch = torch.stack([classifier.picture(data) for data in pictures[:5]])
    took, end = [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        engine(batch)
        took.append(time.perf_counter() - begin)
    return 1000 * statistics.median(took)


MEASURES = {
    "pictures a second": pictures_a_second,
    "milliseconds for one": milliseconds_for_one,
    "milliseconds for five": milliseconds_for_five,
}


def _serve(backbone: str, prototypes: str) -> None:
    pictures = [base64.b64decode(one) for one in json.loads(sys.stdin.readline())]
    torch.set_num_threads(1)
    classifier = Classifier(backbone, Path(prototypes))
    engine = Engine(classifier)
    print(pictures_a_second(engine, classifier, pictures, 0.5), flush=True)  # the first calls are slow
    for line in sys.stdin:
        asked = json.loads(line)
        measure = MEASURES[asked["what"]]
        measure(engine, classifier, pictures, asked["warm"])
        print(round(measure(engine, classifier, pictures, asked["seconds"]), 3), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
