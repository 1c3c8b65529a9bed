"""From embeddings of a class's pictures to its prototype."""

from collections.abc import Iterable
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from core.bank import ClassId

WELL_KNOWN = 20  # pictures from which on a class mean is good enough to lend support to others
MOST_SPANNING = 128  # classes: with as many as there are dimensions the span would be everything
DAMPING = 0.1  # of directions in which well-known classes hardly differ
Prior = Literal["span", "neighbours"]


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


def supported(
    prototypes: Tensor,
    shots: Tensor,
    known: Known,
    *,
    prior_shots: float,
    prior: Prior = "span",
    besides: Iterable[ClassId] = (),
) -> Tensor:
    """Support prototypes of few shots with what is known of well-known classes.

    The mean of five pictures is a noisy guess at a class. The well-known classes give another, which is worth
    `prior_shots` pictures: p ← |p| · (n·p/|p| + m·guess) / (n + m). It fades as a class gets more pictures. Without
    well-known classes nothing changes. `besides`: classes that lend no support, though they may be well known.
    """
    lending = known.shots >= WELL_KNOWN
    lending[known.rows(besides)] = False
    if prior_shots <= 0 or not lending.any():
        return prototypes
    references = F.normalize(known.prototypes[lending], dim=1)  # (R, M)
    directions = F.normalize(prototypes, dim=1)
    guess = _part_in_span(directions, references) if prior == "span" else _mean_of_neighbours(directions, references)
    own = shots.to(prototypes.dtype)[:, None]
    length = prototypes.norm(dim=1, keepdim=True)
    better: Tensor = length * (own * directions + prior_shots * guess) / (own + prior_shots)
    return better


def _part_in_span(directions: Tensor, references: Tensor) -> Tensor:
    """The part of each direction that lies in the span of the references, or of those that it resembles most.

    Classes differ from each other along that span; whatever a few pictures have beyond it is more likely their own.
    """
    if len(references) > MOST_SPANNING:
        resembling = (directions @ references.T).topk(MOST_SPANNING, dim=1).indices
        some = zip(directions, resembling, strict=True)
        return torch.cat([_part_in_span(direction[None], references[rows]) for direction, rows in some])
    overlaps = references @ references.T + DAMPING * torch.eye(len(references), device=references.device)
    part: Tensor = torch.linalg.solve(overlaps, references @ directions.T).T @ references
    return part


def _mean_of_neighbours(directions: Tensor, references: Tensor) -> Tensor:
    """TEEN's guess (Wang et al., NeurIPS 2023): Σ_b softmax(16·cos(p, b))·b; as many prior shots as shots: α = 0.5."""
    return torch.softmax(16.0 * directions @ references.T, dim=1) @ references
