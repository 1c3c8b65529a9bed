"""Episodes of an incremental session (paper, Algorithm 1).

The paper draws negatives among the episode's own classes only. That never gives a past class, and gives none when one
class is taught alone. Here negatives come from current and past classes, and where there are past classes, one of the
two is the nearest of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_SUPPORT = 9  # images per class in an episode: bounds the cost of a step when a class has a hundred shots


@dataclass(frozen=True)
class Episode:
    """Rows of the session's (shot, view) table: for each class one query, and the support that makes its prototype."""

    classes: Tensor  # (n,) positions of the episode's classes within the session
    query: Tensor  # (n,)
    support: Tensor  # (m,)
    support_class: Tensor  # (m,) which of the n classes each support row belongs to


def draw_episode(owners: Tensor, views: int, most_classes: int, generator: torch.Generator) -> Episode:
    """One episode over shots whose classes are `owners` (S,), each shot present in `views` views.

    Row s·views + v is view v of shot s. A class with one shot is queried with another view of it.
    """
    present = owners.unique()
    chosen = present[torch.randperm(len(present), generator=generator)[:most_classes]]
    query, support, support_class = [], [], []
    for position, owner in enumerate(chosen):
        shots = (owners == owner).nonzero()[:, 0]
        shots = shots[torch.randperm(len(shots), generator=generator)[: MOST_SUPPORT + 1]]
        view = torch.randint(views, (max(2, len(shots)),), generator=generator)
        if len(shots) == 1:
            shots = shots.repeat(2)
            view[1] = (view[0] + 1) % views
        rows = shots * views + view
        query.append(rows[0])
        support.append(rows[1:])
        support_class.append(torch.full((len(rows) - 1,), position))
    return Episode(chosen, torch.stack(query), torch.cat(support), torch.cat(support_class))


def draw_queries(owners: Tensor, views: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Shots and views of a step (count,), in which every class is as likely as any other."""
    weights = 1.0 / owners.bincount().float()[owners]
    shots = torch.multinomial(weights, count, replacement=True, generator=generator)
    return shots, torch.randint(views, (count,), generator=generator)


def draw_negatives(distances: Tensor, own: Tensor, past: Tensor, generator: torch.Generator) -> Tensor:
    """Two distinct negatives for each query, both of another class, (n, 2); needs at least three classes.

    `distances` (n, K) to every class, `own` (n,) the query's class, `past` (K,) which classes are past ones. The first
    is the nearest past class, or any other where there is none; the second is any other.
    """
    count, classes = distances.shape
    allowed = torch.ones(count, classes)
    allowed.scatter_(1, own[:, None].cpu(), 0)
    if past.any():
        others = distances.detach().masked_fill(~past[None], torch.inf).scatter(1, own[:, None], torch.inf)
        first = others.argmin(1).cpu()
    else:
        first = torch.multinomial(allowed, 1, generator=generator)[:, 0]
    allowed.scatter_(1, first[:, None], 0)
    second = torch.multinomial(allowed, 1, generator=generator)[:, 0]
    return torch.stack([first, second], dim=1).to(distances.device)
