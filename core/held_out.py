"""Leave-one-out: each shot compared with its class made without it, to see how far images of a class may be from it.

A class taught with a few shots can spare none for measuring.
"""

import torch
from torch import Tensor

from core.prototypes import Known, mean_prototypes, supported
from core.space import Space
from core.views import LabelledViews

FAR_FROM_SIBLINGS = (
    1.75  # times the median of the others: 4 % false alarms, 66 % of wrong shots of a similar kind found
)
ANOTHER_IMAGE = 10.0  # an image is about this many times farther from another of its class than from its own crops


def held_out_prototypes(embeddings: Tensor, shots: LabelledViews, known: Known, *, prior_shots: float) -> Tensor:
    """For each shot (S, V, M) the prototype of its class made without it, (S, M).

    A class with a single shot is represented by the shot's other views.
    """
    counts = shots.counts[shots.owners]  # (S,)
    sums = mean_prototypes(embeddings, shots.owners, len(shots.class_ids))[shots.owners] * counts[:, None]
    others = (sums - embeddings.mean(1)) / (counts - 1).clamp_min(1)[:, None]
    alone = counts == 1
    others[alone] = embeddings[alone][:, 1 if embeddings.shape[1] > 1 else 0 :].mean(1)
    return supported(
        others,
        (counts - 1).clamp_min(1),
        known,
        prior_shots=prior_shots,
        besides=[class_id for class_id in shots.class_ids if class_id in known.class_ids],
    )


def held_out_distances(
    space: Space, embeddings: Tensor, shots: LabelledViews, known: Known, *, prior_shots: float
) -> Tensor:
    """How far each shot's centre view is from its class without it, (S,).

    Views of one shot are much nearer to each other than two images are, so the distance of a single shot is scaled up.
    """
    prototypes = held_out_prototypes(embeddings, shots, known, prior_shots=prior_shots)
    counts = shots.counts[shots.owners]
    distances = space.apart(embeddings[:, 0], prototypes, counts - 1)
    alone = counts == 1
    return torch.where(alone, ANOTHER_IMAGE * distances, distances)


def outlying(distances: Tensor) -> list[bool]:
    """Which shots of one class are far from the others; never one of fewer than three."""
    if len(distances) < 3:
        return [False] * len(distances)
    return [
        bool(distance > FAR_FROM_SIBLINGS * torch.cat([distances[:place], distances[place + 1 :]]).median())
        for place, distance in enumerate(distances)
    ]
