"""The in-process limit: decoding and network in a loop, without HTTP. No server on this machine can be faster.

`python -m bench.load.in_process_main BACKBONE PROTOTYPES` takes turns with the servers. It reads images in base64 from
the first line of standard input, then one JSON line for each measurement, and prints one number for each. The number
that it prints first means that it is ready.
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

from bench.peers.torch_classifier import Classifier
from engine.compiled_module import compiled, on_one_core
from engine.cores import batch_scheduling, usable_cores

BATCH = 8

Quantity = Literal["images per second", "milliseconds for one", "milliseconds for five"]


class Engine:
    """The network and the nearest class mean, compiled as in the service."""

    def __init__(self, classifier: Classifier) -> None:
        backbone = classifier.backbone
        image = backbone.framing.blank()
        with torch.no_grad():
            activation = backbone.trunk(image)
        self.trunk = compiled(backbone.trunk, image, device=torch.device("cpu"))
        self.tail = compiled(backbone.tail, activation, device=torch.device("cpu"), heavy=False)
        self.nearest = classifier.nearest

    def __call__(self, images: Tensor) -> int:
        return len(self.nearest.predict(self.tail(self.trunk(images)), 5))

    def on_one_core(self, images: Tensor) -> int:
        activations = on_one_core(self.trunk)(images)
        return len(self.nearest.predict(on_one_core(self.tail)(activations), 5))


def images_per_second(engine: Engine, classifier: Classifier, images: Sequence[bytes], seconds: float) -> float:
    """Threads that decode and compute batches without waiting for anybody.

    There are two more threads than cores: with fewer, cores are idle whenever two threads need the Python lock.
    """
    end = time.perf_counter() + seconds
    threads = usable_cores() + 2

    def batches(number: int) -> int:
        source, done = islice(cycle(images), number, None), 0
        while time.perf_counter() < end:
            done += engine.on_one_core(torch.stack([classifier.input_of(data) for data in islice(source, BATCH)]))
        return done

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(batches, range(threads)))
    return done / (time.perf_counter() - begin)


def milliseconds_for_one(engine: Engine, classifier: Classifier, images: Sequence[bytes], seconds: float) -> float:
    took, end = [], time.perf_counter() + seconds
    for data in cycle(images):
        begin = time.perf_counter()
        if begin > end:
            break
        engine(classifier.input_of(data)[None])
        took.append(time.perf_counter() - begin)
    return 1000 * statistics.median(took)


def milliseconds_for_five(engine: Engine, classifier: Classifier, images: Sequence[bytes], seconds: float) -> float:
    """The network alone, without decoding."""
    batch = torch.stack([classifier.input_of(data) for data in images[:5]])
    took, end = [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        engine(batch)
        took.append(time.perf_counter() - begin)
    return 1000 * statistics.median(took)


MEASURES = {
    "images per second": images_per_second,
    "milliseconds for one": milliseconds_for_one,
    "milliseconds for five": milliseconds_for_five,
}


def _serve(backbone: str, prototypes: str) -> None:
    images = [base64.b64decode(one) for one in json.loads(sys.stdin.readline())]
    torch.set_num_threads(1)
    batch_scheduling()  # as in the service
    classifier = Classifier(backbone, Path(prototypes))
    engine = Engine(classifier)
    print(images_per_second(engine, classifier, images, 0.5), flush=True)  # the first calls are slow
    for line in sys.stdin:
        request = json.loads(line)
        measure = MEASURES[request["quantity"]]
        measure(engine, classifier, images, request["warm"])
        print(round(measure(engine, classifier, images, request["seconds"]), 3), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
