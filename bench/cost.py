"""What one incremental session costs: seconds and peak memory, the trunk included.

Each measurement is a process of its own, so that peaks do not add up. The pictures are noise, of which a network makes
the same number of operations as of birds.
"""

import json
import resource
import subprocess
import sys
import time
from typing import Any

import torch

from core import backbones
from core.bank import ClassId
from core.incremental_session import IncrementalConfig
from core.refinement import refine
from core.space import Space, Whitening
from core.state import LearnerState
from core.views import LabelledViews
from engine.graph_template import compile_module

VIEWS = 9
SCENES = (  # ways, shots, past classes
    (1, 5, 100),
    (10, 5, 100),
    (10, 5, 2000),
)


def measure_costs(backbone: str) -> list[dict[str, Any]]:
    """One entry for each scene."""
    return [_in_own_process(backbone, *scene) for scene in SCENES]


def _in_own_process(backbone: str, ways: int, shots: int, past: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.cost", backbone, str(ways), str(shots), str(past)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"measuring {ways}-way {shots}-shot failed: {answer.stderr.strip().splitlines()[-1]}")
    entry: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return entry


def _measure(name: str, ways: int, shots: int, past: int) -> dict[str, Any]:
    network = backbones.build(name)
    generator = torch.Generator().manual_seed(0)
    size = network.framing.size
    example = network.framing.blank()
    trunk = compile_module(network.trunk, example, device=torch.device("cpu"))
    whitening = Whitening(torch.zeros(network.dim), torch.eye(network.dim))
    known = torch.rand(past, network.dim, generator=generator)
    parent = LearnerState.untaught(network)
    bank = parent.bank.with_classes([ClassId(k) for k in range(past)], known, [30] * past)
    for _ in range(bank.capacity):  # as after many sessions: full of copies, each a little different
        bank = bank.with_copies(bank.prototypes + 0.01 * torch.randn(past, network.dim, generator=generator))
    parent = LearnerState(name, parent.weights, Space("whitened", whitening), bank, parent.certainty)
    pictures = torch.randint(0, 256, (ways * shots * VIEWS, 3, size, size), dtype=torch.uint8, generator=generator)
    labels = torch.arange(ways).repeat_interleave(shots) + past
    guard_pictures, guard_labels = pictures[:1], torch.zeros(1, dtype=torch.long)
    guard = LabelledViews(trunk(guard_pictures)[:, None], guard_labels)
    started = time.perf_counter()
    activations = torch.cat([trunk(some) for some in pictures.split(VIEWS)])
    views = LabelledViews(activations.unflatten(0, (ways * shots, VIEWS)), labels)
    refine(network, parent, views, IncrementalConfig(), guard=guard)
    return {
        "ways": ways,
        "shots": shots,
        "past": past,
        "seconds": round(time.perf_counter() - started, 2),
        "megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], *map(int, sys.argv[2:]))))
