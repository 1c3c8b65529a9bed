"""From the embeddings of a class's images to its prototype."""

from collections.abc import Iterable
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from core.bank import ClassId

WELL_KNOWN = 20  # images from which on a class mean is good enough to support others
MOST_SPANNING = 128  # classes: with as many as dimensions, everything would be in their span
DAMPING = 0.1  # of directions along which well-known classes hardly differ
Prior = Literal["span", "neighbours"]


class Prototyped(Protocol):
    """Classes to compare with: a bank, or a classifier made of one."""

    @property
    def class_ids(self) -> tuple[ClassId, ...]: ...

    @property
    def shots(self) -> Tensor: ...  # (K,)

    @property
    def prototypes(self) -> Tensor: ...  # (K, M); their length does not matter


class Known(Prototyped, Protocol):
    """`Prototyped` where classes can be looked up by id."""

    def rows(self, class_ids: Iterable[ClassId]) -> list[int]: ...


def mean_prototypes(embeddings: Tensor, owners: Tensor, classes: int) -> Tensor:
    """Mean over shots and views, (S, V, M), (S,) → (classes, M); every class must have a shot."""
    sums = embeddings.new_zeros(classes, embeddings.shape[-1]).index_add_(0, owners, embeddings.mean(1))
    return sums / owners.bincount(minlength=classes)[:, None]


def supported(
    prototypes: Tensor,
    shots: Tensor,
    known: Known,
    *,
    prior_shots: float,
    prior: Prior = "span",
    besides: Iterable[ClassId] = (),
) -> Tensor:
    """Improve prototypes of few shots with a prior from well-known classes.

    The mean of five images is a noisy estimate of a class. The well-known classes give another one, which is worth
    `prior_shots` images: p ← |p| · (n·p/|p| + m·estimate) / (n + m). It fades as a class gets more images. Without
    well-known classes nothing changes. `besides`: classes that give no support, even if they are well known.
    """
    supporting = known.shots >= WELL_KNOWN
    supporting[known.rows(besides)] = False
    if prior_shots <= 0 or not supporting.any():
        return prototypes
    references = F.normalize(known.prototypes[supporting], dim=1)  # (R, M)
    directions = F.normalize(prototypes, dim=1)
    estimate = (_part_in_span if prior == "span" else _mean_of_neighbours)(directions, references)
    own = shots.to(prototypes.dtype)[:, None]
    length = prototypes.norm(dim=1, keepdim=True)
    better: Tensor = length * (own * directions + prior_shots * estimate) / (own + prior_shots)
    return better


def _part_in_span(directions: Tensor, references: Tensor) -> Tensor:
    """The part of each direction in the span of the references, or of those that are most similar to it.

    Classes differ from each other along that span; the rest of a mean of few images is more likely noise.
    """
    if len(references) > MOST_SPANNING:
        similar = (directions @ references.T).topk(MOST_SPANNING, dim=1).indices
        pairs = zip(directions, similar, strict=True)
        return torch.cat([_part_in_span(direction[None], references[rows]) for direction, rows in pairs])
    overlaps = references @ references.T + DAMPING * torch.eye(len(references), device=references.device)
    part: Tensor = torch.linalg.solve(overlaps, references @ directions.T).T @ references
    return part


def _mean_of_neighbours(directions: Tensor, references: Tensor) -> Tensor:
    """TEEN (Wang et al., NeurIPS 2023): Σ_b softmax(16·cos(p, b))·b; as many prior shots as shots: α = 0.5."""
    return torch.softmax(16.0 * directions @ references.T, dim=1) @ references
