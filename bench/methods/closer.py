"""CLOSER (Oh et al., "Towards Better Representation Learning for Few-Shot Class-Incremental Learning", ECCV 2024).

Its idea is in the base session: a self-supervised contrast of two views spreads the features, and base classes are
drawn *closer* to each other, which keeps features that new classes need. Later sessions are class means with a frozen
network. Here the base session that all methods share goes on with these losses for a quarter of its epochs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.methods import ncm
from bench.methods.contract import Method, RivalValues
from core.base_training import Objective, Step

CONTRAST = 0.01  # weight of the contrast, as in the paper
TEMPERATURE = 0.1  # of the contrast


def closer_classes(values: RivalValues) -> Objective:
    def objective(step: Step) -> Tensor:
        features, others = step.part(step.inputs), step.part(step.another_view())
        spread = CONTRAST * contrast(features, others)
        return step.cross_entropy(features) + spread - values.strength * closeness(step.cosines(features), step.targets)

    return objective


def contrast(one: Tensor, other: Tensor) -> Tensor:
    """InfoNCE: each image must find its other view among those of the batch."""
    logits = F.normalize(one, dim=1) @ F.normalize(other, dim=1).T / TEMPERATURE
    return F.cross_entropy(logits, torch.arange(len(one), device=one.device))


def closeness(cosines: Tensor, targets: Tensor) -> Tensor:
    """Mean cosine of images with the classes that are not theirs."""
    others = cosines.masked_fill(F.one_hot(targets, cosines.shape[1]).bool(), 0)
    return others.sum() / max(1, others.numel() - len(others))


CLOSER = Method(
    ncm.learn,
    knobs=("rival.strength",),
    defaults=RivalValues(strength=1.5),
    objective=closer_classes,
    objective_reads=("strength",),
)
