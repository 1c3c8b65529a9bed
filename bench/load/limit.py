"""The in-process limit: decode and engine in a loop, no HTTP. What a server could reach if asking cost nothing.

`python -m bench.load.limit BACKBONE PROTOTYPES SECONDS < pictures`: pictures are length-prefixed on standard input.
Prints a JSON line: pictures a second on all cores, milliseconds for one picture by itself, and for
five at once without decoding.
"""

import json
import statistics
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import torch
from torch import Tensor

from bench.peers.classifier import Classifier
from core.cores import usable_cores
from core.inference import compiled, on_one_core

BATCH = 8


class Engine:
    """The network and the nearest class mean, compiled as the service does it."""

    def __init__(self, classifier: Classifier) -> None:
        backbone = classifier.backbone
        picture = backbone.framing.blank()
        with torch.no_grad():
            activation = backbone.trunk(picture)
        self.trunk = compiled(backbone.trunk, picture, device=torch.device("cpu"))
        self.tail = compiled(backbone.tail, activation, device=torch.device("cpu"), heavy=False)
        self.nearest = classifier.nearest

    def __call__(self, pictures: Tensor) -> int:
        return len(self.nearest.predict(self.tail(self.trunk(pictures)), 5))

    def on_one_core(self, pictures: Tensor) -> int:
        activations = on_one_core(self.trunk)(pictures)
        return len(self.nearest.predict(on_one_core(self.tail)(activations), 5))


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


def framed(pictures: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(picture)) + picture for picture in pictures)


def _unframed(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        (length,) = struct.unpack_from("<I", data, place)
        yield data[place + 4 : place + 4 + length]
        place += 4 + length


def _measure(backbone: str, prototypes: str, seconds: float) -> dict[str, float]:
    pictures = list(_unframed(sys.stdin.buffer.read()))
    torch.set_num_threads(1)
    classifier = Classifier(backbone, Path(prototypes))
    engine = Engine(classifier)
    pictures_a_second(engine, classifier, pictures, seconds / 4)  # the first calls are slow
    return {
        "rate": round(pictures_a_second(engine, classifier, pictures, seconds), 2),
        "milliseconds": round(milliseconds_for_one(engine, classifier, pictures, seconds / 2), 3),
        "five": round(milliseconds_for_five(engine, classifier, pictures, seconds / 4), 3),
    }


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2], float(sys.argv[3]))))
