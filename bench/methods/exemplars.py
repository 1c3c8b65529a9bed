"""Exemplars: the few images of each base class that a method keeps. All old shots are exemplars too.

They are chosen by herding with the network of the base session, so that they are the same in every session and nothing
has to be stored between sessions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.methods.base_features import features_of_base_images
from bench.methods.contract import SessionContext
from core.views import LabelledViews


def herd(vectors: Tensor, count: int) -> list[int]:
    """Rows of (n, M), best first, whose mean is nearest to the mean of all at every length (iCaRL, algorithm 4)."""
    mean, chosen = vectors.mean(0), list[int]()
    total = torch.zeros_like(mean)
    taken = torch.zeros(len(vectors), dtype=torch.bool)
    for place in range(1, min(count, len(vectors)) + 1):
        apart = ((total + vectors) / place - mean).norm(dim=1).masked_fill(taken, torch.inf)
        row = int(apart.argmin())
        chosen.append(row)
        taken[row] = True
        total += vectors[row]
    return chosen


def herded_rows(vectors: Tensor, labels: Tensor, count: int) -> Tensor:
    """`herd` in each class, best first within a class."""
    rows = [(labels == label).nonzero()[:, 0] for label in labels.unique()]
    return torch.cat([some[herd(vectors[some], count)] for some in rows])


def base_exemplars(session: SessionContext, count: int) -> LabelledViews:
    """So many images of each base class, best first within a class."""
    images = session.all_base_images
    return images.select(herded_rows(base_embeddings(session), images.labels, count))


def base_embeddings(session: SessionContext) -> Tensor:
    """Of the base images under the network of the base session, at unit length, (n, M)."""
    return F.normalize(session.base.space.embed(features_of_base_images(session)), dim=1)


def balanced(images: LabelledViews, count: int) -> LabelledViews:
    """The first so many images of each class."""
    rows = [(images.labels == label).nonzero()[:count, 0] for label in images.labels.unique()]
    return images.select(torch.cat(rows))
