"""Samples that look alike, in groups: each joins the first group whose first member is near enough."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from core.space import power_normalised

NEAR = 0.2  # cosine distance of power-normalised features; two images of one kind of thing are nearer


def groups_of(features: Sequence[Tensor]) -> list[int | None]:
    """The number of each one's group, from 1, largest group first; None for one that is like no other."""
    leaders: list[Tensor] = []
    members: list[int] = []
    for vector in power_normalised(torch.stack(list(features))) if features else ():
        near = (1 - torch.stack(leaders) @ vector) <= NEAR if leaders else torch.zeros(0, dtype=torch.bool)
        found = near.nonzero()[:1, 0].tolist()
        if not found:
            leaders.append(vector)
        members.append(found[0] if found else len(leaders) - 1)
    sizes = Counter(members)
    numbers = {group: number for number, (group, _) in enumerate(sizes.most_common(), start=1)}
    return [numbers[group] if sizes[group] > 1 else None for group in members]
