"""From the centre view of an image to the answer, as one module: network, space, prototypes, temperature, threshold.

It computes with `core`'s own space, so there is no second definition of a distance.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from core.backbones import Backbone
from core.classifier import NearestClassMean

LONGEST_TOP = 100  # classes, as many as the service lists


class EdgeAnswer(NamedTuple):
    """Of one image. Classes are numbers from 0, in the order of the labels in the metadata."""

    top: Tensor  # (1, k) the nearest classes, nearest first
    distances: Tensor  # (1, k) to these
    confidences: Tensor  # (1, k) in these
    unknown: Tensor  # (1,) whether even the nearest is too far
    limit: Tensor  # (1,) the distance from the nearest beyond which it would be unknown
    all_distances: Tensor  # (1, classes)


class Answering(nn.Module):
    def __init__(self, backbone: Backbone, classifier: NearestClassMean) -> None:
        super().__init__()
        self.backbone = backbone
        self.space = classifier.space
        self.temperature = classifier.certainty.temperature
        self.listed = min(LONGEST_TOP, len(classifier))
        self.register_buffer("prototypes", classifier.prototypes)
        self.register_buffer("limits", (classifier.leeway.double() + classifier.certainty.threshold).float())

    def forward(self, view: Tensor) -> EdgeAnswer:
        prototypes, limits = self.get_buffer("prototypes"), self.get_buffer("limits")
        queries = self.space.comparable(self.space.embed(self.backbone(view)))
        distances = self.space.from_products(queries @ prototypes.T, queries, prototypes)
        nearest, top = distances.topk(self.listed, dim=1, largest=False)
        first = nearest[:, :1]
        total = torch.exp((first - distances) / self.temperature).sum(1, keepdim=True)
        confidences = torch.exp((first - nearest) / self.temperature) / total
        limit = limits[top[:, 0]]
        # Written this way round so that a NaN distance is unknown too.
        return EdgeAnswer(top, nearest, confidences, ~(nearest[:, 0] <= limit), limit, distances)
