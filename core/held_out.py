"""Each picture against its class as the others show it: what says how far pictures of a class may lie from it.

A class taught with a few shots can spare none for measuring, so every shot is measured against a prototype made
without it.
"""

import torch
from torch import Tensor

from core.prototypes import Known, mean_prototypes, supported
from core.space import Space
from core.views import LabelledViews

FAR_FROM_SIBLINGS = 1.75  # times the median of the others: 4 % false alarms, 66 % of strangers of the same kind found
ANOTHER_PICTURE = 10.0  # a picture is about so much farther from another of its class than from crops of its own


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

    The views of a single shot are much nearer to each other than two pictures are; that is made up for.
    """
    prototypes = held_out_prototypes(embeddings, shots, known, prior_shots=prior_shots)
    distances = space.apart(embeddings[:, 0], prototypes)
    alone = shots.counts[shots.owners] == 1
    return torch.where(alone, ANOTHER_PICTURE * distances, distances)


def outlying(distances: Tensor) -> list[bool]:
    """Which shots of one class lie far from their siblings; of fewer than three nobody can say."""
    if len(distances) < 3:
        return [False] * len(distances)
    return [
        bool(distance > FAR_FROM_SIBLINGS * torch.cat([distances[:place], distances[place + 1 :]]).median())
        for place, distance in enumerate(distances)
    ]
