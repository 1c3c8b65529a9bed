"""Drift: how far old prototypes move with a network that has changed (Yu et al., CVPR 2020).

A changed tail moves old classes too, and their history cannot show by how much. The session's own shots can: their
embeddings before and after show the shift of the space around them.
"""

import torch
from torch import Tensor

from core.space import Space, euclidean


def drift(prototypes: Tensor, before: Tensor, after: Tensor, space: Space, bandwidth: float) -> Tensor:
    """How far to shift each prototype (P, M): by the mean movement of the shots (S, V, M), more by that of near ones.

    The weights are a Gaussian of the distance between unit vectors, of width `bandwidth`, normalised to one: where no
    shot is near, all count equally.
    """
    start, movement = before.flatten(0, 1), (after - before).flatten(0, 1)  # (S·V, M)
    distances = euclidean(space.comparable(prototypes), space.comparable(start))  # (P, S·V)
    weights = torch.softmax(-0.5 * (distances / bandwidth) ** 2, dim=1)
    return weights @ movement
