"""TEEN (Wang et al., "Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration", NeurIPS 2023).

The network is frozen. The mean of few shots lies too near to other classes, and base classes tell where it should be:
it is moved towards the base classes that are most similar to it, half of the way at strength 1 (its α = 0.5).
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.methods.contract import Method, Outcome, SessionContext
from bench.methods.head_training import means_of

SHARPNESS = 16.0  # the paper's τ, of how much a base class resembles a new one


def learn(session: SessionContext) -> Outcome:
    bank, shots, strength = session.state.bank, session.shots, session.setup.values.strength
    base = bank.prototypes[bank.rows(session.base.bank.class_ids)]  # as they are in the space of the state
    means = means_of(session, session.backbone, shots)
    prototypes = calibrated(means, base, strength / (1 + strength))
    return Outcome(replace(session.state, bank=bank.with_classes(shots.class_ids, prototypes, shots.counts.tolist())))


def calibrated(means: Tensor, base: Tensor, alpha: float) -> Tensor:
    """p ← |p|·((1 − α)·p/|p| + α·Σ_b softmax(16·cos(p, b))·b/|b|), over all base classes, (C, M), (B, M) → (C, M)."""
    directions, references = F.normalize(means, dim=1), F.normalize(base, dim=1)
    alike = torch.softmax(SHARPNESS * directions @ references.T, dim=1)
    moved: Tensor = means.norm(dim=1, keepdim=True) * ((1 - alpha) * directions + alpha * alike @ references)
    return moved


TEEN = Method(learn, knobs=("rival.strength",))
