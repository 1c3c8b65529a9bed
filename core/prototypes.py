"""From embeddings of a class's pictures to its prototype."""

from collections.abc import Iterable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from core.bank import ClassId

WELL_KNOWN = 20  # pictures from which on a class mean is good enough to lend support to others


class Prototyped(Protocol):
    """Classes as those see them who only compare with them."""

    @property
    def class_ids(self) -> tuple[ClassId, ...]: ...

    @property
    def shots(self) -> Tensor: ...  # (K,)

    @property
    def prototypes(self) -> Tensor: ...  # (K, M); their length does not matter


class Known(Prototyped, Protocol):
    """The same where one can be looked up: a bank, or a classifier made of one."""

    def rows(self, class_ids: Iterable[ClassId]) -> list[int]: ...


def mean_prototypes(embeddings: Tensor, owners: Tensor, classes: int) -> Tensor:
    """Mean over shots and views, (S, V, M), (S,) → (classes, M); every class must own a shot."""
    sums = embeddings.new_zeros(classes, embeddings.shape[-1]).index_add_(0, owners, embeddings.mean(1))
    return sums / owners.bincount(minlength=classes)[:, None]


def supported_by_neighbours(
    prototypes: Tensor,
    shots: Tensor,
    known: Known,
    *,
    prior_shots: float,
    sharpness: float = 16.0,
    besides: Iterable[ClassId] = (),
) -> Tensor:
    """Pull prototypes of few shots towards the well-known classes that resemble them.

    The mean of five pictures is a noisy guess at a class. What is known of similar classes is a prior for it, worth
    `prior_shots` pictures: p ← (n·p + m·Σ_b softmax(sharpness·cos(p, b))·b) / (n + m). With n = m this is
    TEEN (Wang et al., NeurIPS 2023) with α = 0.5; unlike there, the pull fades as a class gets more pictures. Without
    well-known classes nothing changes. `besides`: classes that lend none, though they may be well known.
    """
    lending = known.shots >= WELL_KNOWN
    lending[known.rows(besides)] = False
    if prior_shots <= 0 or not lending.any():
        return prototypes
    references = F.normalize(known.prototypes[lending], dim=1)  # (R, M)
    directions = F.normalize(prototypes, dim=1)
    guess = torch.softmax(sharpness * directions @ references.T, dim=1) @ references
    own = shots.to(prototypes.dtype)[:, None]
    length = prototypes.norm(dim=1, keepdim=True)
    supported: Tensor = length * (own * directions + prior_shots * guess) / (own + prior_shots)
    return supported
