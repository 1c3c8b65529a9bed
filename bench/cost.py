"""The cost of one incremental session: seconds and peak memory, trunk included.

Each measurement is a process of its own, so that peaks do not add up. The images are noise: a network computes the same
number of operations for any image.
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import torch

from bench.chosen_engine import chosen_engine
from core.backbones import Backbone
from core.bank import ClassId
from core.incremental_session import IncrementalConfig
from core.refinement import refine
from core.scatter import Scatter
from core.space import Space, Whitening
from core.state import LearnerState
from core.trials import SessionImages
from core.views import LabelledViews
from engine.graph_template import compile_module
from engine.pretrained import pretrained

VIEWS = 9
SCENES = ((1, 5, 100), (10, 5, 100), (10, 5, 2000), (10, 5, 10_000))  # ways, shots, known classes


def measure_costs(backbone: str) -> list[dict[str, Any]]:
    """One entry for each scene."""
    return [_in_own_process(backbone, *scene) for scene in SCENES]


GUARD = 40  # images of old classes to measure on, at most


def _in_own_process(backbone: str, ways: int, shots: int, past: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.cost", backbone, str(ways), str(shots), str(past)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"measuring {ways}-way {shots}-shot failed: {answer.stderr.strip().splitlines()[-1]}")
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def _measure(name: str, ways: int, shots: int, past: int) -> dict[str, Any]:
    network = pretrained(name)
    generator = torch.Generator().manual_seed(0)
    trunk = compile_module(network.trunk, network.framing.blank(), device=torch.device("cpu"), engine=chosen_engine())
    parent = _known_classes(network, past, generator)
    size = network.framing.size
    images = torch.randint(0, 256, (ways * shots * VIEWS, 3, size, size), dtype=torch.uint8, generator=generator)
    labels = torch.arange(ways).repeat_interleave(shots) + past
    seen = trunk(images[:GUARD])[:, None]
    guard = LabelledViews(seen, torch.arange(len(seen)) % past)
    started = time.perf_counter()
    activations = torch.cat([trunk(some) for some in images.split(VIEWS)])
    views = LabelledViews(activations.unflatten(0, (ways * shots, VIEWS)), labels)
    refine(network, parent, SessionImages(views, guard=guard), IncrementalConfig())
    return {
        "ways": ways,
        "shots": shots,
        "past": past,
        "seconds": round(time.perf_counter() - started, 2),
        "megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _known_classes(network: Backbone, count: int, generator: torch.Generator) -> LearnerState:
    """A state as after many sessions: each class has its full number of copies, each a little different."""
    prototypes = torch.rand(count, network.dim, generator=generator)
    state = LearnerState.untaught(network)
    bank = state.bank.with_classes([ClassId(k) for k in range(count)], prototypes, [30] * count)
    for _ in range(bank.capacity):
        bank = bank.with_copies(bank.prototypes + 0.01 * torch.randn(count, network.dim, generator=generator))
    whitening = Whitening(torch.zeros(network.dim), torch.eye(network.dim))
    factor = torch.randn(network.dim, network.dim, generator=generator)
    scatter = Scatter(factor, 270 * count)
    return replace(state, space=Space("whitened", whitening), bank=bank, scatter=scatter)


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], *map(int, sys.argv[2:]))))
