"""The losses of an incremental session.

Functions of distances, as in the paper: a query's distance to every class (n, K), the row of its own class, and the
distances that involve its two negatives. Vectors are expected at unit length.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

LossKind = Literal[
    "contrastive", "triplet", "quadruplet", "prototypical-quadruplet", "cross-entropy", "cross-entropy-quadruplet"
]
QUADRUPLET = 0.5  # weight of the quadruplet beside the cross-entropy
LOSS_KINDS: tuple[LossKind, ...] = get_args(LossKind)


@dataclass(frozen=True)
class Margins:
    """α1 separates a query from its negative; α2 separates it from the distance between the two negatives."""

    query: float = 1.0
    negatives: float = 0.5


@dataclass(frozen=True)
class Quadruplets:
    """The input of a loss for n queries: distances to every class, and the negatives drawn for each query."""

    to_classes: Tensor  # (n, K) d(f(q), c_k)
    own: Tensor  # (n,) which of the K is the query's class
    to_negative: Tensor  # (n,) d(f(q), c_n)
    between_negatives: Tensor  # (n,) d(c_n, c_nn)

    @property
    def to_own(self) -> Tensor:
        return self.to_classes.gather(1, self.own[:, None])[:, 0]  # (n,)


def embedding_loss(quadruplets: Quadruplets, margins: Margins) -> Tensor:
    """g(q, k) of eq. 2 for every class k, (n, K).

    The hinge [·]₊ is ours: without it α cancels in the softmax of eq. 3, but the paper's table shows that α matters,
    and the paper gives g the codomain [0, ∞).
    """
    to_classes = quadruplets.to_classes
    first = F.relu(to_classes - quadruplets.to_negative[:, None] + margins.query)
    second = F.relu(to_classes - quadruplets.between_negatives[:, None] + margins.negatives)
    return first + second


def prototypical_quadruplet_loss(quadruplets: Quadruplets, margins: Margins) -> Tensor:
    """L_PQ, eq. 4: −log softmax_k(−g(q, k)) at the query's class, over all classes, past ones included."""
    return F.cross_entropy(-embedding_loss(quadruplets, margins), quadruplets.own)


def contrastive_loss(quadruplets: Quadruplets, margins: Margins) -> Tensor:
    """Ablation: pull the own class near, push the negative beyond α1."""
    pull = quadruplets.to_own**2
    push = F.relu(margins.query - quadruplets.to_negative) ** 2
    return (pull + push).mean()


def triplet_loss(quadruplets: Quadruplets, margins: Margins) -> Tensor:
    """Ablation: the first half of the quadruplet."""
    return F.relu(quadruplets.to_own - quadruplets.to_negative + margins.query).mean()


def quadruplet_loss(quadruplets: Quadruplets, margins: Margins) -> Tensor:
    """Ablation: g at the query's own class, without the softmax over classes."""
    return embedding_loss(quadruplets, margins).gather(1, quadruplets.own[:, None]).mean()


def prototypical_cross_entropy(quadruplets: Quadruplets, sharpness: float, smoothing: float = 0.0) -> Tensor:
    """−log softmax_k(−τ·d²): cross-entropy of a nearest-class-mean classifier."""
    return F.cross_entropy(-sharpness * quadruplets.to_classes**2, quadruplets.own, label_smoothing=smoothing)


def session_loss(
    kind: LossKind, quadruplets: Quadruplets, margins: Margins, sharpness: float = 8.0, smoothing: float = 0.0
) -> Tensor:
    """The loss that an incremental session minimises, by name."""
    match kind:
        case "contrastive":
            return contrastive_loss(quadruplets, margins)
        case "triplet":
            return triplet_loss(quadruplets, margins)
        case "quadruplet":
            return quadruplet_loss(quadruplets, margins)
        case "prototypical-quadruplet":
            return prototypical_quadruplet_loss(quadruplets, margins)
        case "cross-entropy":
            return prototypical_cross_entropy(quadruplets, sharpness, smoothing)
        case "cross-entropy-quadruplet":
            apart = quadruplet_loss(quadruplets, margins)
            return prototypical_cross_entropy(quadruplets, sharpness, smoothing) + QUADRUPLET * apart


def correlation_loss(prototypes: Tensor) -> Tensor:
    """L_COR, eq. 5: mean over pairs i ≠ j of σ(cos(tanh c_i, tanh c_j)). A mean, since a sum grows as K²."""
    count = len(prototypes)
    if count < 2:
        return prototypes.new_zeros(())
    directions = F.normalize(torch.tanh(prototypes), dim=1)
    similarity = torch.sigmoid(directions @ directions.T)  # (K, K)
    return (similarity.sum() - similarity.diagonal().sum()) / (count * (count - 1))


def consistency_loss(prototypes: Tensor, initial: Tensor) -> Tensor:
    """L_CS, eq. 6 as a loss: mean of 1 − cos(tanh c_i, tanh c0_i). The paper's sign would push c away from c0."""
    return (1 - F.cosine_similarity(torch.tanh(prototypes), torch.tanh(initial), dim=1)).mean()
