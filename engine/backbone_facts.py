"""What there is to know of a backbone before it is used: sizes, work, and where its weights come from.

It is built without weights, on torch's meta device, so nothing is downloaded and no memory is taken.
"""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from core import backbones
from core.errors import BackboneError
from engine.compiled_backbone import CompiledBackbone
from engine.compiled_module import warm_up
from engine.weight_sources import WeightSource, source_of

SHORTEST, FEWEST = 1.0, 20  # seconds and images of a measurement at least


@dataclass(frozen=True)
class BackboneFacts:
    name: str
    input: int  # pixels of a side
    features: int
    parameters: int
    multiply_adds: int  # for an image
    weights: tuple[WeightSource, ...]  # of a pair, both

    @property
    def available(self) -> bool:
        return all(source.available for source in self.weights)


def facts_of(name: str, folder: Path | None = None) -> BackboneFacts:
    """Raises BackboneError if there is no such backbone. `folder`: of weight files."""
    backbones.require_known(name)
    weights = tuple(source_of(backbones.network_of(part), folder) for part in backbones.parts_of(name))
    try:
        with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            built = backbones.build(name)
            before = counter.get_total_flops()  # building runs some networks once, to learn their sizes
            built(built.framing.blank())
    except BackboneError:
        raise
    except Exception as error:  # some of timm's models cannot be built like this
        raise BackboneError(f"{name} cannot be examined without its weights ({type(error).__name__})") from error
    work = (counter.get_total_flops() - before) // 2  # a multiplication and an addition count as two
    return BackboneFacts(name, built.framing.size, built.dim, built.parameter_count, work, weights)


def milliseconds(compiled: CompiledBackbone) -> float:
    """The median time of an image through trunk and tail, alone on all cores."""
    tail, image = compiled.tail({}), compiled.framing.blank()
    warm_up(tail, warm_up(compiled.pretrained_trunk, image))
    times: list[float] = []
    while len(times) < FEWEST or sum(times) < SHORTEST:
        start = time.perf_counter()
        tail(compiled.pretrained_trunk(image))
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)
