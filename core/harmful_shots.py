"""Which shots of a class do harm: without them more of the others would be recognised.

Each of the others is held out in turn, as always when shots are measured.
"""

import torch
from torch import Tensor

from core.space import Space

FEWEST = 3  # shots: one is doubted, one is measured, and one is the class


def harmful_shots(space: Space, embeddings: Tensor, nearest_other: Tensor) -> list[bool] | None:
    """Embeddings (S, M) of a class's shots, and how far each is from the nearest other class (S,); None if too few."""
    count = len(embeddings)
    if count < FEWEST:
        return None
    others = embeddings.sum(0) - embeddings  # (S, M) sums without each
    right = space.apart(embeddings, others / (count - 1), torch.full((count,), count - 1)) < nearest_other  # (S,)
    found = []
    for doubted in range(count):
        without = (others - embeddings[doubted]) / (count - 2)
        better = space.apart(embeddings, without, torch.full((count,), count - 2)) < nearest_other
        rest = torch.arange(count) != doubted
        found.append(bool(better[rest].sum() > right[rest].sum()))
    return found
