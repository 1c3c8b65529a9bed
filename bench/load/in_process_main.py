"""The in-process limit: decoding and network in a loop, without HTTP. No server on this machine can be faster.

`python -m bench.load.in_process_main BACKBONE PROTOTYPES` takes turns with the servers. It reads images in base64 from
the first line of standard input, then one JSON line for each measurement, and prints one number for each. The number
that it prints first means that it is ready.
"""

import base64
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor

from bench.peers.torch_classifier import Classifier
from engine.compiled_module import Engine, throughput_mode
from engine.cores import usable_cores
from engine.graph_template import compile_module

BATCH = 8

Quantity = Literal["images per second", "milliseconds for one", "milliseconds for five"]


class Limit:
    """The network and the nearest class mean, compiled as in the service."""

    def __init__(self, classifier: Classifier, images: Sequence[bytes]) -> None:
        self.classifier = classifier
        self.images = images
        backbone = classifier.backbone
        image = backbone.framing.blank()
        with torch.no_grad():
            activation = backbone.trunk(image)
        engine = cast(Engine, os.environ.get("PROTOQUAD_ENGINE", "auto"))  # the service's own setting
        compiled = partial(compile_module, device=torch.device("cpu"), engine=engine)
        self.trunk = compiled(backbone.trunk, image)
        self.tail = compiled(backbone.tail, activation, latency=False)

    def measure(self, quantity: Quantity, seconds: float) -> float:
        if quantity == "images per second":
            return self._images_per_second(seconds)
        if quantity == "milliseconds for one":
            source = cycle(self.images)
            return _milliseconds(lambda: self._predict(self._inputs(islice(source, 1))), seconds)
        five = self._inputs(self.images[:5])  # the network alone, without decoding
        return _milliseconds(lambda: self._predict(five), seconds)

    def _images_per_second(self, seconds: float) -> float:
        """Threads that decode and compute batches without waiting for anybody.

        There are two more threads than cores: with fewer, cores are idle whenever two threads need the Python lock.
        """
        begin = time.perf_counter()
        threads = usable_cores() + 2

        def batches(number: int) -> int:
            source, done = islice(cycle(self.images), number, None), 0
            while time.perf_counter() < begin + seconds:
                done += self._predict(self._inputs(islice(source, BATCH)), one_core=True)
            return done

        with ThreadPoolExecutor(threads) as pool:
            done = sum(pool.map(batches, range(threads)))
        return done / (time.perf_counter() - begin)

    def _inputs(self, images: Iterable[bytes]) -> Tensor:
        return torch.stack([self.classifier.input_of(data) for data in images])

    def _predict(self, inputs: Tensor, *, one_core: bool = False) -> int:
        trunk, tail = (throughput_mode(part) if one_core else part for part in (self.trunk, self.tail))
        return len(self.classifier.nearest.predict(tail(trunk(inputs)), 5))


def _milliseconds(work: Callable[[], object], seconds: float) -> float:
    """The median of many calls."""
    took, end = [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        work()
        took.append(time.perf_counter() - begin)
    return 1000 * statistics.median(took)


def _serve(backbone: str, prototypes: str) -> None:
    images = [base64.b64decode(one) for one in json.loads(sys.stdin.readline())]
    torch.set_num_threads(1)
    limit = Limit(Classifier(backbone, Path(prototypes)), images)
    print(limit.measure("images per second", 0.5), flush=True)  # the first calls are slow
    for line in sys.stdin:
        request = json.loads(line)
        limit.measure(request["quantity"], request["warm"])
        print(round(limit.measure(request["quantity"], request["seconds"]), 3), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
